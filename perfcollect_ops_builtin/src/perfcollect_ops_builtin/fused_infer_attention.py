"""Replay of FusedInferAttentionScore."""

from __future__ import annotations

from perfcollect_core import OperatorSpec

from .attention_spec import SPEC


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    return SPEC
