"""What commands print with `--format json` has the keys that docs/json.md lists, for every command that prints results."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import click
import pytest
from shell_blocks import REPOSITORY, run_line

from perfcollect_core.cli import main, perfcollect
from perfcollect_core.cli.arguments import walk_commands

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("docs-json")]
pytest.importorskip("torch")

PAGE = (REPOSITORY / "docs" / "json.md").read_text(encoding="utf-8")
COMM = "--backend gloo --nproc 2 --num-devices 2 --grid-shape 2 --ops all_reduce --bytes-grid 1024"


def _documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = re.findall(r"^\| `([^`]+)`([^|]*)\| an? (list|object) \| (.*) \|$", PAGE, re.MULTILINE)
    return {
        name + more.rstrip(): (kind, tuple(re.findall(r"`([^`]+)`", keys))) for name, more, kind, keys in rows
    }


DOCUMENTED = _documented()


def keys_of(name: str) -> set[str]:
    keys = set(DOCUMENTED[name][1])
    if "ops show" in name or "ops --long" in name:
        keys |= {*DOCUMENTED["ops"][1], *DOCUMENTED["ops --long"][1]}
    return keys - {"ops", "ops --long", "error"}


def check(name: str, printed: str) -> None:
    value = json.loads(printed)
    kind, _ = DOCUMENTED[name]
    assert isinstance(value, list if kind == "list" else dict)
    entries = value if isinstance(value, list) else [value]
    assert entries
    assert [set(entry) ^ keys_of(name) for entry in entries] == [set() for _ in entries]


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """Make a directory with a measured database, a journal to apply, and a run of collectives."""
    directory = tmp_path_factory.mktemp("json")
    source = directory / "source"
    source.mkdir()
    shutil.copy(REPOSITORY / "samples" / "database" / "Add.csv", source)
    (source / "op_mapping.yaml").write_text("Mul: {}\n")
    assert main(["db", "derive", str(source), str(directory / "data" / "CPU_X86_64" / "torch2.13.0")]) == 0
    assert (
        run_line(
            f"perfcollect comm run {COMM} --budget 0.05 --run-dir comm_run --format json > comm.json",
            directory,
        )[0]
        == 0
    )
    profile = REPOSITORY / "samples" / "profile"
    assert (
        main(["parse", "--profiling-path", str(profile), "--database-path", str(directory / "profiled")]) == 0
    )
    run, tables = str(directory / "comm_run"), str(directory / "tables")
    assert main(["comm", "export", "--run-dir", run, "--database-path", tables]) == 0
    return directory


@pytest.fixture
def here(root, monkeypatch) -> Path:
    monkeypatch.chdir(root)
    return root


def ask(capsys, *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main([*arguments, "--format", "json"]) == code
    return capsys.readouterr().out


DATABASE = "data/CPU_X86_64/torch2.13.0"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ops", "ops"),
        ("ops --long", "ops --long"),
        ("ops show", "ops show MatMulV2"),
        ("db info", f"db info {DATABASE}"),
        ("db list", "db list data"),
        ("db derive", f"db derive {DATABASE} derived"),
        ("db init", "db init made --ops Add"),
        ("parse", f"parse --profiling-path {REPOSITORY / 'samples' / 'profile'} --database-path parsed"),
        ("grid", "grid --database-path profiled --rows 2"),
        ("run --dry-run", f"run --dry-run --database-path {DATABASE}"),
        ("run with nothing selected", f"run --update-mode missing-only --rows 99 --database-path {DATABASE}"),
        ("plugin new", "plugin new Foo --directory project"),
        ("comm plan", f"comm plan {COMM}"),
        ("comm export", "comm export --run-dir comm_run --database-path exported"),
        ("comm check", "comm check tables"),
        ("comm report", "comm report --run-dir comm_run"),
    ],
)
def test_a_command_prints_the_documented_keys(here, capsys, name, arguments):
    printed = ask(capsys, *arguments.split())

    if name == "comm export":
        assert json.loads(printed) == {"exported/hcom_allReduce_.csv": 1}
    else:
        check(name, printed)


def test_a_check_that_finds_something_prints_the_documented_keys(here, capsys):
    (here / "broken").mkdir(exist_ok=True)
    (here / "broken" / "Add.csv").write_text("")

    check("db check", ask(capsys, "db", "check", "broken", code=1))


def test_doctor_prints_the_documented_keys(here, capsys, monkeypatch):
    from perfcollect_core.diagnosis import databases

    # One check of the real ones: loading every plugin in a process of its own takes its time.
    monkeypatch.setattr("perfcollect_core.cli.doctor._checks", lambda: (databases.databases,))

    check("doctor", ask(capsys, "doctor"))


def test_a_run_prints_the_documented_keys_and_so_does_writing_it_back(here, capsys):
    options = ["--database-path", DATABASE, "--rows", "1", "--repeat-count", "3"]

    printed = ask(capsys, "run", *options)

    check("run", printed)
    check("db apply", ask(capsys, "db", "apply", json.loads(printed)["run_dir"]))
    status = next((here / DATABASE / "reports").glob("run_status_*.json"))
    assert set(json.loads(status.read_text())) <= keys_of("run")


def test_a_replay_prints_the_documented_keys(here, capsys):
    options = ["--database-path", DATABASE, "--rows", "1", "--repeat-count", "1"]

    check("replay", ask(capsys, "replay", *options))


def test_a_run_of_collectives_prints_the_documented_keys(root):
    check("comm run", (root / "comm.json").read_text())


def test_a_sweep_of_collectives_prints_the_documented_keys(root):
    options = "--backend gloo --grid-shape 2 --bytes-grid 1024 --budget 0.02"

    run_line(f"NPROC=2 perfcollect comm sweep swept {options} --format json > sweep.json", root)

    check("comm sweep", (root / "sweep.json").read_text())


def test_every_command_that_prints_json_is_documented():
    printing = {
        " ".join(path)
        for path, command in walk_commands(perfcollect)
        if any(isinstance(option, click.Option) and "--format" in option.opts for option in command.params)
    }

    assert printing - DOCUMENTED.keys() == set()
