"""Each entry of the troubleshooting pages: the state is provoked, and what is printed is what the pages say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shell_blocks import REPOSITORY, run_line

from perfcollect_core.cli import main
from perfcollect_core.families.ascend_probe import AscendMachine
from perfcollect_core.tables.columns import AVERAGE
from perfcollect_core.tables.patch import write_table
from perfcollect_core.tables.read import read_table

SAMPLES = REPOSITORY / "samples" / "database"
PAGES = ("troubleshooting.md", "troubleshooting.zh.md")


def page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text(encoding="utf-8")


def entries(name: str) -> list[str]:
    """Return the recorded output of each entry."""
    return re.findall(r"^```text\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)


def documented(entry: int, line: int) -> str:
    """Return a line of an entry's recording, the same on both pages."""
    english, chinese = (entries(name)[entry].splitlines()[line] for name in PAGES)
    assert english == chinese
    return english


def agrees(printed: str, recorded: str) -> bool:
    """Tell whether *printed* is what was *recorded*; ``...`` stands for what differs from machine to machine."""
    pattern = ".*".join(re.escape(part.strip()) for part in recorded.split("..."))
    return re.search(pattern, printed) is not None


@pytest.fixture
def database(tmp_path: Path) -> Path:
    target = tmp_path / "samples"
    target.mkdir()
    for name in ("Add.csv", "AddRmsNormBias.csv", "MatMulV2.csv"):
        shutil.copy(SAMPLES / name, target)
    return target


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch) -> None:
    """Hide an Ascend stack that may be here."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = AscendMachine()
    if machine.msprof() or machine.installed("torch-npu"):
        pytest.skip("this machine has an Ascend stack outside the environment")


def test_the_pages_have_the_same_six_entries():
    assert [len(entries(name)) for name in PAGES] == [6, 6]
    assert [len(re.findall(r"^## ", page(name), re.MULTILINE)) for name in PAGES] == [6, 6]


@pytest.mark.torch
def test_a_database_that_is_not_found(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFCOLLECT_DATA_ROOT", raising=False)

    assert main(["run", "--family", "cpu", "--ops", "MatMulV2"]) == 1

    message, hint = capsys.readouterr().err.splitlines()
    assert hint == documented(0, 1)
    shape = re.sub(r"CPU_\w+|torch=?\d[\d.]*", "X", documented(0, 0))
    assert re.sub(r"CPU_\w+|torch=?\d[\d.]*", "X", message) == shape


def test_msprof_that_is_not_found(database, bare_machine, capsys):
    assert main(["run", "--family", "ascend", "--ops", "Add", "--database-path", str(database)]) == 1

    message, hint = capsys.readouterr().err.splitlines()[-2:]
    assert agrees(message, documented(1, 0))
    assert agrees(hint, documented(1, 1))


@pytest.mark.torch
def test_custom_operators_without_their_environment(database, bare_machine, capsys):
    pytest.importorskip("perfcollect_ops_vllm_ascend")
    before = (database / "AddRmsNormBias.csv").read_bytes()

    code = main(
        ["run", "--family", "ascend", "--ops", "AddRmsNormBias", "Add", "--database-path", str(database)]
    )

    message, hint = capsys.readouterr().err.splitlines()[-2:]
    assert code == 1
    assert agrees(message, documented(2, 0))
    assert agrees(hint, documented(2, 1))
    assert hint.endswith("--ops Add")
    assert (database / "AddRmsNormBias.csv").read_bytes() == before


@pytest.mark.torch
def test_missing_only_that_has_nothing_to_do(database, capsys):
    pytest.importorskip("torch")
    table = read_table(database / "MatMulV2.csv")
    rows = [{**row.cells, AVERAGE: "12.5", "Accelerator Core": "CPU"} for row in table.rows]
    (database / "MatMulV2.csv").unlink()
    write_table(database / "MatMulV2.csv", table.header, rows)

    code = main(
        ["run", "--ops", "MatMulV2", "--update-mode", "missing-only", "--database-path", str(database)]
    )

    assert code == 0
    assert capsys.readouterr().out.strip() == documented(3, 0)


@pytest.mark.torch
def test_collectives_that_wrote_no_csv(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("perfcollect_comm")
    options = "--backend gloo --nproc 2 --num-devices 2 --grid-shape 2 --ops all_reduce --bytes-grid 1024"

    code, told = run_line(f"perfcollect comm run {options} --budget 0.05", tmp_path)

    assert code == 0
    summary, hint = documented(4, 0), documented(4, 1)
    assert summary in told
    (printed,) = (line for line in told.splitlines() if line.startswith("hint: "))
    assert agrees(printed, hint)
    assert list(tmp_path.rglob("hcom_*.csv")) == []
    exported = printed.removeprefix("hint: ").removesuffix(" writes its tables")
    assert run_line(exported, tmp_path)[0] == 0
    assert (tmp_path / "OUT" / "hcom_allReduce_.csv").is_file()


@pytest.mark.torch
def test_a_collection_whose_other_node_never_comes(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("perfcollect_comm")
    address = _address()
    options = (
        "--backend gloo --nnodes 2 --nproc 1 --node-rank 0 --num-devices 2 --grid-shape 2 --bytes-grid 1024"
    )

    code, told = run_line(
        f"perfcollect comm run {options} --master-addr {address} --master-port 29811 --join-timeout 1",
        tmp_path,
    )

    assert code == 1
    assert documented(5, 1) in told.splitlines()
    assert re.search(r"ranks did not join within 1 s: .*node 1 local 0", told)


def _address() -> str:
    """Return an address of this host that is not the loopback, which several nodes are refused."""
    done = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False)
    found = [word for word in done.stdout.split() if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", word)]
    if not found:
        pytest.skip("this host has no address but the loopback")
    return found[0]
