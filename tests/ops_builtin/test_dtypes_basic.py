"""Every dtype torch can build replays or is refused in words, for each of the basic operators."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from perfcollect_core import Case, Skip, example_row
from perfcollect_core.loading import load_operator
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.values import TORCH_DTYPES

pytestmark = pytest.mark.torch

#: Small rows: ``*`` stands for the dtype, ``W`` and ``H`` for the width and its half.
ROWS = {
    "Add": ("3,W;3,W", "*;*", "3,W", "*"),
    "ArgMaxV2": ("5,W", "*", "5", "INT32"),
    "GatherV2": ("9,W;5;1", "*;INT64;INT64", "5,W", "*"),
    "Index": ("9,W;1;2;5", "*;INT64;INT64;INT64", "5,W", "*"),
    "MaskedFill": ("3,W;3,1", "*;BOOL", "3,W", "*"),
    "MoeTokenPermute": ("5,W;5,2", "*;INT32", "10,W;10", "*;INT32"),
    "MoeTokenUnpermute": ("10,W;10;5,2", "*;INT32;*", "5,W", "*"),
    "PadV3": ("5,W;4", "*;INT64", "6,W", "*"),
    "RmsNorm": ("5,W;W", "*;*", "5,W", "*"),
    "ScatterNdUpdate": ("9,W;5,1;5,W", "*;INT32;*", "9,W", "*"),
    "Slice": ("5,W;2;2", "*;INT64;INT64", "5,H", "*"),
    "SoftmaxV2": ("5,W", "*", "5,W", "*"),
    "Sort": ("5,W", "*", "5,W;5,W", "*;INT32"),
    "SwiGlu": ("5,W", "*", "5,H", "*"),
    "TensorMove": ("5,W", "*", "5,W", "*"),
    "Transpose": ("5,W;2", "*;INT64", "W,5", "*"),
}


def row_of(operator, dtype, width=4):
    values = {"*": dtype, "W": str(width), "H": str(width // 2)}
    return example_row(
        *(re.sub(r"\*|\b[WH]\b", lambda found: values[found[0]], text) for text in ROWS[operator])
    )


@pytest.mark.parametrize("dtype", sorted(TORCH_DTYPES))
@pytest.mark.parametrize("operator", sorted(ROWS))
def test_a_dtype_replays_rightly_or_is_refused_by_name(operator, dtype):
    done = replay(operator, load_operator(operator).plugin, row_of(operator, dtype))

    if isinstance(done, Skip):
        assert done.kind == "invalid_case"
        assert f"has dtype {dtype}, expected " in done.reason
    else:
        assert done.wrong is None


@pytest.mark.parametrize("dtype", ["FLOAT8_E4M3FN", "HIFLOAT8", "INT4"])
@pytest.mark.parametrize("operator", sorted(ROWS))
def test_a_dtype_torch_cannot_build_is_left_to_the_family_or_skipped_by_name(operator, dtype):
    host = host_for(operator, load_operator(operator).plugin)

    made = host.make_case(host.spec(), make_row(operator, row_of(operator, dtype)))

    if isinstance(made, Case):
        assert dtype in {tensor.dtype for tensor in made.tensors.values()}
    else:
        assert made.kind == "skipped"
        assert made.reason.startswith(f"dtype not supported here: {dtype} of input ")


@pytest.mark.parametrize("operator", sorted(ROWS))
def test_a_row_of_tebibytes_is_a_case_and_costs_what_it_costs(operator):
    host = host_for(operator, load_operator(operator).plugin)

    made = host.make_case(host.spec(), make_row(operator, row_of(operator, "FLOAT", 1 << 42)))

    assert isinstance(made, Case), made.reason
    assert sum(tensor.nbytes for tensor in made.tensors.values()) > 1 << 40
    assert host.estimate_cost(made).nbytes > 0
