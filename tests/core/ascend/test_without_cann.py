"""Without CANN nothing is measured, nothing else takes its place, and what is missing is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import test_sessions

from perfcollect_core.cli import main
from perfcollect_core.tables.identity import Identity, write_identity

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_npu") is not None, reason="torch_npu is installed here"
)


@pytest.fixture
def database(fake_distribution, tmp_path, monkeypatch) -> Path:
    for variable in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    fake_distribution("profiled-op", operators={"Profiled": "profiled_world:operator"})
    path = tmp_path / "db"
    path.mkdir()
    test_sessions.write_table(path / "Profiled.csv", ["", ""])
    write_identity(path, Identity("ascend", "ATLAS_800_A3_752T_128G_DIE"))
    return path


@pytest.mark.parametrize("family", ["ascend", "auto"])
@pytest.mark.parametrize("visible", [None, "1,0"])
def test_a_run_stops_and_says_what_is_missing(database, capsys, monkeypatch, family, visible):
    if visible is not None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
    before = {path.name: path.read_bytes() for path in database.iterdir()}

    code = main(["run", "--database-path", str(database), "--family", family])

    said = " ".join(capsys.readouterr().err.split())
    assert code == 1
    assert "no device of family ascend here: " in said
    for missing in ("torch_npu", "CANN (ASCEND_HOME_PATH) (ASCEND_HOME_PATH is not set)", "msprof"):
        assert missing in said
    assert "run `source <CANN>/set_env.sh` in this shell" in said
    assert "Traceback" not in said
    assert {path.name: path.read_bytes() for path in database.iterdir()} == before


def test_doctor_makes_what_the_family_lacks_an_error(capsys, monkeypatch):
    for variable in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(variable, raising=False)

    code = main(["doctor", "--family", "ascend"])

    said = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "lacks CANN (ASCEND_HOME_PATH) (looked ASCEND_HOME_PATH is not set)" in said
    assert "lacks torch_npu" in said


def test_a_device_test_without_a_device_is_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    code = main(["doctor", "--device-test", "--family", "ascend"])

    assert code == 1
    assert "no device of family ascend here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
