"""Replay of DispatchFFNCombine: an expert-parallel MoE layer in one collective kernel, over a real world of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    MatchedRows,
    Need,
    OperatorSpec,
    Plan,
    Reference,
    Row,
    RunRequest,
    Samples,
    Skip,
    Slot,
    default_case,
    example_row,
    parse_signature,
    read_examples,
)
from perfcollect_core.lengths import tensor_key

from .expert_rows import EP_COLUMN, find_ranks, find_routing, find_tensors, refuse_variants
from .theory.experts import AXES
from .theory.experts import fused_rows as perfcollect_generate_rows  # noqa: F401  # a hook

_OPP = (
    "export ASCEND_CUSTOM_OPP_PATH=…/vllm_ascend/_cann_ops_custom/vendors/<dir> and LD_LIBRARY_PATH to its op_api/lib, "
    "then start again"
)
_VLLM = "install vllm-ascend built with its custom kernels"
_DTYPES = "DT_BF16;INT8;INT8;INT32;INT64;INT64;FLOAT"
_FORMATS = "ND;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND"
_OUT = "DT_BF16;INT32"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch.distributed.all_to_all_single, grouped torch.matmul or torch._int_mm, all_to_all_single"
    ep = {EP_COLUMN: "2"}
    return OperatorSpec(
        name="DispatchFFNCombine",
        summary="all-to-all of tokens to their experts, SwiGLU FFN of each expert, all-to-all back, weighted sum",
        api={"ascend": "torch.ops._C_ascend.dispatch_ffn_combine", "cuda": stock, "cpu": stock},
        inputs=(
            Slot("x", "[T,H]; leading axes are flattened"),
            Slot("weight1", "[E,H,2I] gate and up, FRACTAL_NZ"),
            Slot("weight2", "[E,I,H], FRACTAL_NZ"),
            Slot("expert_idx", "[T,k] global expert ids"),
            Slot("scale1", "[E,2I] fp32 bits in INT64 (W8A8)", optional=True),
            Slot("scale2", "[E,H] fp32 bits in INT64 (W8A8)", optional=True),
            Slot("probs", "[T,k]"),
            Slot("x_active_mask", "[T], newer kernels", optional=True),
        ),
        outputs=(Slot("out", "[T,H]"), Slot("expert_token_nums", "[E] rows received for each local expert", optional=True)),
        # With bf16 weights the same call launches a kernel of its own name.
        aliases=("DispatchFFNCombineBF16",),
        key_columns=(
            EP_COLUMN,
            "Runtime max_output_size",
            "Runtime routing_pattern",
            "Runtime routing_alpha",
            "Runtime active_rows",
            "Runtime seed",
        ),
        needs=(
            Need("module", "vllm_ascend", _VLLM),
            Need("env", "ASCEND_CUSTOM_OPP_PATH", _OPP),
            Need("schema", "_C_ascend::dispatch_ffn_combine", _VLLM),
        ),
        ranks=None,
        axes=AXES,
        value_policy=(
            "x N(0, 1); int8 weights over the full range with packed fp32 scales of 1e-3 to 1e-2, others N(0, 1 / rows); "
            "global expert ids, distinct for each token: balanced (every expert equally often), random or skewed "
            "(Zipf); probabilities a softmax that sums to 1; the load reached is recorded"
        ),
        assumptions=(
            "routing_pattern=balanced",
            "max_output_size=65536",
            "routing_alpha=1 for skewed routing",
            "a blank EP Size is never guessed: the row is skipped",
        ),
        negative=(
            example_row(
                "8,64;4,64,64;4,32,64;8,2;4,64;4,64;8,3", _DTYPES, "8,64;4", _OUT, _FORMATS
            ) | ep,
            example_row("8,64;4,64,64;4,16,64;8,2;4,64;4,64;8,2", _DTYPES, "8,64;4", _OUT, _FORMATS) | ep,
            example_row("8,64;4,64,64;4,32,64;8,16;4,64;4,64;8,16", _DTYPES, "8,64;4", _OUT, _FORMATS) | ep,
            example_row("8,64;4,64,64;4,32,64;8,2;4,64;4,64;8,2", _DTYPES, "9,64;4", _OUT, _FORMATS) | ep,
            example_row("8,64;4,64,64;4,32,64;8,2;4,64;4,64;8,2", _DTYPES, "8,64;4", _OUT, _FORMATS)
            | {EP_COLUMN: "two"},
        ),
        examples=read_examples("perfcollect_ops_vllm_ascend", "operators/dispatch_ffn_combine.csv"),
    )  # fmt: skip


def perfcollect_match_rows(spec: OperatorSpec, rows: Sequence[Row], request: RunRequest) -> MatchedRows:
    """Replay the rows of the EP size the run was asked for; the others are skipped with their count."""
    option = request.options.get("ep_size", request.options.get("dispatch_ffn_combine_ep_size"))
    wanted = int(cast("int", option)) if option else None
    made = [(row, perfcollect_make_case(spec, row)) for row in rows]
    others = Counter(case.ranks for _, case in made if isinstance(case, Case) and case.ranks != wanted)
    cases, skips = [], []
    for row, case in made:
        if isinstance(case, Skip):
            skips.append((row, case))
        elif wanted is None or case.ranks == wanted:
            cases.append(case)
        else:
            count, size = others[case.ranks], case.ranks
            rest = f"{count} row{'s have' if count > 1 else ' has'} EP size {size}"
            skips.append(
                (
                    row,
                    Skip(
                        f"{rest}, this run replays {wanted} (--dispatch-ffn-combine-ep-size {size} replays them)"
                    ),
                )
            )
    return MatchedRows(tuple(cases), tuple(skips))


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        refused = refuse_variants(signature)
        if refused:
            return refused
        ranks = find_ranks(row)
        if isinstance(ranks, Skip):
            return ranks
        tensors = find_tensors(signature, ranks)
        params = find_routing(row, (tensors["x"].shape or (0,))[0], assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    if signature.input(4).dtype == "FLOAT":
        assumptions.append("scales packed into INT64 (slots 4 and 5 record FLOAT)")
    made = default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)
    return attrs.evolve(made, ranks=ranks) if isinstance(made, Case) else made


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    tensors = [tensor_key(name, tensor) for name, tensor in sorted(made.tensors.items())]
    modes = [f"{name}={value}" for name, value in sorted(made.params.items())]
    return (spec.name, *tensors, f"ep={made.ranks}", *modes)


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Estimate one rank's work with balanced routing."""
    experts, hidden, double = case.tensors["weight1"].shape or (1, 1, 2)
    inner, weight_bytes = double // 2, case.tensors["weight1"].nbytes / case.tensors["weight1"].numel
    received = case.tensors["expert_idx"].numel
    used = min(experts, received)
    row = hidden + 4 if weight_bytes == 1 else 2 * hidden
    nbytes = used * 3 * hidden * inner * weight_bytes + 2 * received * row
    nbytes += received * (4 * inner + 2 * inner * weight_bytes + 4 * hidden) + 2 * case.tensors["x"].nbytes
    return Cost(6.0 * received * hidden * inner + 10.0 * received * inner, float(nbytes))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    from .expert_inputs import make_rank_inputs

    return make_rank_inputs(case, device, device.rank)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    from .expert_world import join_world

    join_world(case, device)
    if device.family == "ascend":
        from .expert_ascend import bind_ascend

        return bind_ascend(case, inputs, device)
    from .expert_layer import bind_torch

    return bind_torch(case, inputs, device)


def perfcollect_measure(case: Case, kernel: Kernel, plan: Plan, device: Device) -> Samples | None:
    """Measure so that all ranks launch equally often; one rank alone is the device family's to measure."""
    from .expert_inputs import routing_load
    from .expert_world import measure_together

    if device.ranks == 1:
        return None
    return attrs.evolve(
        measure_together(kernel, plan, device),
        counters={"MicroBench load_max_over_mean": routing_load(case)},
    )


def perfcollect_reference(case: Case, inputs: Inputs, device: Device) -> Reference:
    from .expert_reference import layer_reference

    return layer_reference(case, inputs, device)
