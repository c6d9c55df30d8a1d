"""Theory rows of the operators outside stock torch_npu: the plan takes them, and the density standard holds."""

from __future__ import annotations

import pytest

from perfcollect_core.cases import RunRequest
from perfcollect_core.discovery import plugin_index
from perfcollect_core.grid.axes import rows_axis
from perfcollect_core.grid.cells import row_of
from perfcollect_core.grid.coverage import CoverageMeter
from perfcollect_core.grid.generate import variant_of
from perfcollect_core.grid.models import known_models
from perfcollect_core.grid.standard import read_standard
from perfcollect_core.host import compose
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.specs import GridRequest

MODELS = known_models()
ALL = GridRequest(models=tuple(MODELS.values()))
OPERATORS = sorted(
    provider.name
    for name in plugin_index().names("operators")
    for provider in plugin_index().providers("operators", name)
    if provider.distribution == "perfcollect-ops-vllm-ascend"
)


def host_of(name):
    return compose(load_operator(name), load_family("cpu"))


def rows_of(name, request=ALL):
    host = host_of(name)
    return list(host.generate_rows(host.spec(), (), request))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_plan_of_every_operator_takes_what_its_rule_yields(name):
    host = host_of(name)
    rows = rows_of(name)

    written = [row_of(f"{name}.csv", name, row) for row in rows[:: max(1, len(rows) // 300)]]
    matched = host.match_rows(host.spec(), written, RunRequest("ascend"))

    assert written
    assert [skip.reason for _, skip in matched.skips] == []


@pytest.mark.parametrize("name", OPERATORS)
def test_the_whole_grid_holds_the_density_standard_and_knows_where_it_stands(name):
    axes = host_of(name).spec().axes
    meter = CoverageMeter(axes, read_standard())
    for row in rows_of(name):
        meter.add_at(variant_of(row), row.at, True)
        assert rows_axis(axes, row_of("", name, row)) == row.at

    assert list(meter.result(f"{name}.csv").findings()) == []


@pytest.mark.parametrize("name", OPERATORS)
def test_no_row_comes_twice(name):
    keys = [row_of("", name, row).ref.key for row in rows_of(name)]

    assert len(keys) == len(set(keys))


def test_dispatch_rows_say_how_many_ranks_they_need():
    rows = rows_of(
        "DispatchFFNCombine", GridRequest(models=(MODELS["deepseek-ai/DeepSeek-V3"],), targeted=True)
    )

    assert len(rows) == 275
    assert {(row.at[1], row.extra["EP Size"]) for row in rows} == {
        (1, "256"), (2, "128"), (4, "64"), (8, "32"), (16, "16"),
    }  # fmt: skip


def test_the_rotary_width_of_a_split_is_that_of_its_heads():
    rows = rows_of(
        "split_qkv_rmsnorm_rope_kernel", GridRequest(models=(MODELS["Qwen/Qwen3-32B"],), targeted=True)
    )

    assert {row.inputs[1] for row in rows} == {(128,)}
    assert len(rows) == 65


def test_ring_prefill_is_only_there_for_heads_the_kernel_takes():
    assert (
        rows_of("RINGMLAPrefillBF16Kernel", GridRequest(models=(MODELS["zai-org/GLM-5.1"],), targeted=True))
        == []
    )
