"""Conformance of the element-wise, norm, indexing, permuting, moving and ordering operators."""

from __future__ import annotations

import pytest

from perfcollect_core.testing.conformance import OperatorConformance

pytestmark = pytest.mark.torch


class TestAdd(OperatorConformance):
    operator = "Add"


class TestArgMaxV2(OperatorConformance):
    operator = "ArgMaxV2"


class TestGatherV2(OperatorConformance):
    operator = "GatherV2"


class TestIndex(OperatorConformance):
    operator = "Index"


class TestInterleaveRope(OperatorConformance):
    operator = "InterleaveRope"


class TestMaskedFill(OperatorConformance):
    operator = "MaskedFill"


class TestMoeTokenPermute(OperatorConformance):
    operator = "MoeTokenPermute"


class TestMoeTokenUnpermute(OperatorConformance):
    operator = "MoeTokenUnpermute"


class TestPadV3(OperatorConformance):
    operator = "PadV3"


class TestRmsNorm(OperatorConformance):
    operator = "RmsNorm"


class TestScatterNdUpdate(OperatorConformance):
    operator = "ScatterNdUpdate"


class TestSlice(OperatorConformance):
    operator = "Slice"


class TestSoftmaxV2(OperatorConformance):
    operator = "SoftmaxV2"


class TestSort(OperatorConformance):
    operator = "Sort"


class TestSwiGlu(OperatorConformance):
    operator = "SwiGlu"


class TestTensorMove(OperatorConformance):
    operator = "TensorMove"


class TestTranspose(OperatorConformance):
    operator = "Transpose"
