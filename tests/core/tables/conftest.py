"""Tables as files: what the tests of reading, keys and patching work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BASE = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats"
)


def matmul_row(m: int, k: int, n: int, average: str = "", core: str = "CPU") -> str:
    """Return the base cells of a MatMulV2 row and its average."""
    return f'dynamic,{core},"""{m},{k};{n},{k}""",DT_BF16;DT_BF16,ND;ND,"""{m},{n}""",DT_BF16,ND,{average}'


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a table of *lines* under the usual header and return its path."""

    def write_lines(
        lines: Sequence[str],
        *,
        name: str = "MatMulV2.csv",
        header: str = f"{BASE},Average Duration(us)",
        newline: str = "\r\n",
        bom: bool = False,
        directory: Path = tmp_path,
    ) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / name
        text = "".join(line + newline for line in (header, *lines))
        path.write_bytes((("\ufeff" if bom else "") + text).encode("utf-8"))
        return path

    return write_lines


@pytest.fixture
def row() -> Callable[..., str]:
    return matmul_row


@pytest.fixture
def base() -> str:
    """Return the eight columns every table begins with."""
    return BASE
