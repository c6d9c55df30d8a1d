"""What operators need from the machine, and either-or needs."""

from __future__ import annotations

import sys

import pytest

from perfcollect_core.environment import Missing, Need
from perfcollect_core.runner.needs import missing_needs

pytestmark = pytest.mark.torch


def test_one_of_several_registered_operators_is_enough():
    pytest.importorskip("torch")
    need = Need("schema", "nowhere::sparse_attention|aten::add")

    assert missing_needs((need,), "ascend") == ()


def test_of_several_operators_all_are_named_where_none_is_registered():
    pytest.importorskip("torch")
    need = Need("schema", "nowhere::sparse_attention|elsewhere::sparse_attention", "install one of them")

    assert missing_needs((need,), "ascend") == (
        Missing(
            "torch operator nowhere::sparse_attention or elsewhere::sparse_attention",
            "neither torch.ops.nowhere.sparse_attention nor torch.ops.elsewhere.sparse_attention is registered by the "
            f"torch of {sys.executable}",
            "install one of them",
        ),
    )
