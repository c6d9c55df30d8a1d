"""Tables of the documentation name what the program has: devices, variables, needs, the predecessor's options."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from option_tables import HEADERS
from shell_blocks import REPOSITORY

from perfcollect_core.cli import perfcollect
from perfcollect_core.cli.arguments import walk_commands
from perfcollect_core.discovery import plugin_index
from perfcollect_core.host import read_spec
from perfcollect_core.loading import load_provider
from perfcollect_core.tables.identity import generation
from perfcollect_core.tables.layout import ASCEND_DEVICES, DEFAULT_ASCEND_DEVICE

DOCS = REPOSITORY / "docs"
TRANSLATED = sorted(path for path in DOCS.glob("*.md") if path.with_suffix(".zh.md").is_file())
VARIABLES = [
    "VLLM_ASCEND_PATH",
    "ASCEND_CUSTOM_OPP_PATH",
    "LD_LIBRARY_PATH",
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "ASCEND_TOOLKIT_HOME_PATH",
    "ASCEND_INSTALL_PATH",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "PERFCOLLECT_DATA_ROOT",
]
#: What a shell or an interpreter sets, and what perfcollect tells its own processes.
NOT_FOR_READERS = {
    "PATH",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "LD_PRELOAD",
    "LOCAL_WORLD_SIZE",
    "MSPROF_OPTIONS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
}
PREDECESSOR = {
    "parse_kernel_details.py": "profiling-path database-path device vllm-version torch-version cann-version",
    "generate_shape_grid.py": "target-models rows seed max-hbm-gb database-path",
    "start_microbench.py": "ops repeat-count update-mode prune-empty-duration-rows fail-fast "
    "dispatch-ffn-combine-ep-size dispatch-ffn-combine-nproc-per-node",
    "run_all_op.py": "execution-mode repeat-count continue-on-error",
    "generate_comm_microbench.py": "ops num-devices topology-tier grid-shape dtype bytes-grid output-csv",
    "run_comm_bench.sh": "",
    "validate_comm_alignment.py": "csv-dir tolerance verbose",
    "trace_to_csv.py": "",
    "memory_estimator.py": "",
    "probe_dfc_constraints.py": "",
}


def section(name: str, mark: str) -> str:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("readme", HEADERS)
def test_the_devices_and_the_default_are_those_of_the_program(readme):
    rows = re.findall(r"^\| `(\w+)`(.*?) \| (\w+) \|$", section(readme, "devices"), re.MULTILINE)

    assert tuple(name for name, _, _ in rows) == ASCEND_DEVICES
    assert [name for name, marked, _ in rows if marked] == [DEFAULT_ASCEND_DEVICE]
    assert all(generation(name) == said for name, _, said in rows)


@pytest.mark.parametrize("readme", HEADERS)
def test_the_prerequisites_name_each_operator_with_needs_and_what_it_needs(readme):
    rows = section(readme, "prerequisites").splitlines()
    lacking = []

    for provider in plugin_index().all("operators"):
        spec = read_spec(load_provider(provider))
        if not spec.needs:
            continue
        row = next((row for row in rows if f"`{spec.name}`" in row), "")
        wanted = [need.name for need in spec.needs if need.kind in ("env", "library", "module")]
        lacking += [f"{spec.name}: {name}" for name in wanted if f"`{name}`" not in row]
        lacking += [] if row else [spec.name]

    assert lacking == []


@pytest.mark.parametrize("readme", HEADERS)
def test_the_prerequisites_name_every_command_that_needs_a_device(readme):
    text = section(readme, "prerequisites")

    assert [
        name for name in perfcollect.list_commands(click.Context(perfcollect)) if f"`{name}" not in text
    ] == ["doctor"]


@pytest.mark.parametrize("page", ["environment.md", "environment.zh.md"])
def test_every_variable_is_explained(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    sources = [path for d in REPOSITORY.glob("perfcollect_*") for path in (d / "src").rglob("*.py")]
    read = {
        name
        for path in sources
        for name in re.findall(
            r"""(?:environ(?:\.get\(|\[)|environment(?:\.get\(|\[)|getenv\()"([A-Z][A-Z_]+)\"""",
            path.read_text("utf-8"),
        )
    }

    wanted = {*VARIABLES, *(name for name in read if not name.startswith("PERFCOLLECT_"))} - NOT_FOR_READERS
    assert sorted(name for name in wanted if f"`{name}`" not in text) == []


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda path: path.stem)
def test_a_page_and_its_translation_have_the_same_sections_tables_and_blocks(page):
    english, chinese = (path.read_text(encoding="utf-8") for path in (page, page.with_suffix(".zh.md")))

    assert re.findall(r"^#+ ", english, re.MULTILINE) == re.findall(r"^#+ ", chinese, re.MULTILINE)
    assert _blocks(english) == _blocks(chinese)
    assert len(re.findall(r"^\|", english, re.MULTILINE)) == len(re.findall(r"^\|", chinese, re.MULTILINE))
    assert f"[English]({page.name})" in chinese
    assert f"[中文]({page.with_suffix('.zh.md').name})" in english


def _blocks(text: str) -> list[str]:
    """Return the fenced blocks of *text*, comments cut: those are translated."""
    blocks = re.findall(r"^```.*?^```$", text, re.DOTALL | re.MULTILINE)
    return [re.sub(r"\s+# .*$", "", block, flags=re.MULTILINE) for block in blocks]


@pytest.mark.parametrize("page", ["migration.md", "migration.zh.md"])
@pytest.mark.parametrize("script", PREDECESSOR)
def test_each_script_of_the_predecessor_has_its_counterpart_and_each_option(page, script):
    text = (DOCS / page).read_text(encoding="utf-8")

    assert re.search(rf"^\| .*`{re.escape(script)}`.* \| .+ \|$", text, re.MULTILINE)
    assert [name for name in PREDECESSOR[script].split() if f"--{name}" not in text] == []


def test_an_option_is_passed_by_a_test_or_named_on_a_page():
    tests = "\n".join(p.read_text("utf-8") for p in (REPOSITORY / "tests").rglob("*.py"))
    pages = "\n".join(_without_tables(path) for path in [*REPOSITORY.glob("*.md"), *DOCS.glob("*.md")])
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", tests + pages))

    unused = [
        f"{' '.join(path)} {name}"
        for path, command in walk_commands(perfcollect)
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--") and name not in used
    ]

    assert not unused, ", ".join(unused)


def _without_tables(page: Path) -> str:
    """Return *page* without the option tables, which name every option anyway."""
    return re.sub(r"<!-- options: .*?<!-- /options -->", "", page.read_text("utf-8"), flags=re.DOTALL)
