"""Replay of GroupedMatmul: rows of x in groups, each group times its own weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Reference,
    Row,
    Signature,
    Skip,
    Slot,
    TensorSpec,
    default_case,
    read_examples,
    torch_dtype,
)

from .group_lists import GROUP_COLUMNS, GroupPolicy, busy_groups, group_spans, make_group_list, read_policy
from .grouped_forms import factor_misfit, form_dtypes, form_misfit
from .grouped_products import bind_groups, grouped_reference
from .grouped_weights import GroupedShape, solve_grouped
from .matrix_layouts import case_sizes, logical_matrix
from .nz_weights import cast_to_nz
from .packed_scales import ascend_scale, pack_scales
from .precision import product_tolerance, quantised_reference
from .row_checks import describe, read_signature, refuse_dtypes, row_cells
from .theory.experts import GROUPED_AXES
from .theory.experts import grouped_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

    from perfcollect_core import ValueMaker

_OPTIONAL = ("bias", "scale", "antiquant_scale", "antiquant_offset", "per_token_scale")
_BF16 = "DT_BF16;DT_BF16"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="y[rows of g] = x[rows of g] weight[g] (+ bias[g]), with per-channel and per-token scales for int8",
        api={
            "ascend": "torch_npu.npu_grouped_matmul",
            "cuda": "torch.mm or torch._int_mm per group",
            "cpu": "torch.mm or torch._int_mm per group",
        },
        inputs=(
            Slot("x", "(M,K)"),
            Slot("weight", "(E,K,N) or (E,N,K); FRACTAL_NZ in blocks or logical"),
            Slot("bias", "(E,N)", optional=True),
            Slot("scale", "(E,N): BF16, FLOAT or packed INT64", optional=True),
            Slot("offset", "not supported by the kernel", optional=True, metadata=True),
            Slot("antiquant_scale", "(E,N) or (E,G,N), float x with an INT8 weight", optional=True),
            Slot("antiquant_offset", "like antiquant_scale", optional=True),
            Slot("group_list", "(E) INT64, or (E,2) sparse", optional=True),
            Slot("per_token_scale", "(M) FLOAT", optional=True),
        ),
        outputs=(Slot("y", "(M,N)"),),
        key_columns=GROUP_COLUMNS,
        axes=GROUPED_AXES,
        value_policy=(
            "x N(0,1), weights N(0,1/K), INT8 over [-127, 127], scales 0.5 to 1.5 times what brings results to order "
            "one; group list drawn multinomially over M rows unless the row names uniform or zipf; seeded by row"
        ),
        assumptions=(
            "group_list_type is 0 (cumulative) unless recorded, 2 for a list of pairs",
            "group_distribution is multinomial unless recorded",
            "every row is in a group unless 'Runtime active_rows' says fewer",
            "the weight is (E,K,N) where both orders fit (K equals N)",
            "a row without a group list gets one of E groups",
        ),
        negative=(
            row_cells("64,256;8,320,128", _BF16, "64,256", "DT_BF16"),
            row_cells("64,256;8,256,128;;;;;;9", f"{_BF16};;;;;;INT64", "64,128", "DT_BF16"),
            row_cells("64,256;8,256,128", _BF16, "64,128", "DT_BF16", Runtime_active_rows="65"),
            row_cells("64,256;8,256,128", _BF16, "", ""),
            row_cells("0,256;8,256,128", _BF16, "0,128", "DT_BF16"),
            row_cells("64,256;8,256,128;;8,127", "INT8;INT8;;DT_BF16", "64,128", "DT_BF16"),
        ),
        examples=read_examples(__package__, "operators/grouped_matmul.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Resolve the weight's order from the output and the group list's policy from the metadata columns."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    if len(signature.inputs) > len(spec.inputs):
        return Skip(
            f"{spec.name}: {len(signature.inputs)} input slots, lists of several tensors are not replayed"
        )
    refused = refuse_dtypes(spec, signature, form_dtypes(signature))
    if refused:
        return refused
    resolved = _resolve(signature, row)
    if isinstance(resolved, str):
        return Skip.invalid(f"{spec.name}: {resolved}")
    shape, policy = resolved
    layout = shape.layout
    m, k, n, groups = layout.m, layout.k, layout.n, shape.groups
    tensors = {
        "x": signature.input(0),
        "weight": logical_matrix(signature.input(1), *((n, k) if layout.transpose_b else (k, n))),
    }
    for index, slot in enumerate(spec.inputs):
        tensor = signature.input(index)
        if slot.name in _OPTIONAL and not tensor.is_absent:
            reason = factor_misfit(slot.name, index, tensor, m, k, n, groups)
            if reason:
                return Skip.invalid(f"{spec.name}: {reason}")
            tensors[slot.name] = tensor
    assumptions = [*layout.assumptions, *policy.assumptions]
    group_list = signature.input(7)
    if group_list.is_absent:
        group_list = TensorSpec((groups,), "INT64", "ND")
        assumptions.append(f"group_list={groups} INT64 (not recorded)")
    tensors["group_list"] = group_list
    params = {
        "m": m,
        "k": k,
        "n": n,
        "transpose_b": layout.transpose_b,
        "out_dtype": signature.output().dtype,
        **policy.params(),
    }
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _resolve(signature: Signature, row: Row) -> tuple[GroupedShape, GroupPolicy] | str:
    x, weight, y, listed = (signature.input(0), signature.input(1), signature.output(), signature.input(7))
    if len(y.shape or ()) != 2:
        return f"output slot 0 is {describe(y)}, expected M,N (only M-grouped products are replayed)"
    m, n = y.shape or (0, 0)
    shape = solve_grouped(x, weight, m, n, what="the output")
    if isinstance(shape, str):
        return f"{shape} (the row describes a whole MoE layer)" if row.get("Num Experts") else shape
    reason = form_misfit(signature)
    if reason:
        return reason
    groups = shape.groups
    if not listed.is_absent and listed.shape not in ((groups,), (groups, 2)):
        return (
            f"input slot 7 'group_list' is {describe(listed)}, expected {groups} or {groups},2 for E={groups}"
        )
    sparse = len(listed.shape or ()) == 2
    if sparse and x.dtype != "INT8":
        return f"input slot 7 'group_list' is {describe(listed)}: lists of pairs go with INT8 x only, not {x.dtype}"
    policy = read_policy(row, groups=groups, rows=m, sparse=sparse)
    return policy if isinstance(policy, str) else (shape, policy)


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2MNK operations of the active rows, and the weights of the groups expected to have rows."""
    k, n, rows, groups = case_sizes(case, "k", "n", "active_rows", "groups")
    share = busy_groups(case) / groups
    nbytes = sum(
        tensor.nbytes * (share if name == "weight" else 1.0) for name, tensor in case.tensors.items()
    ) + sum(tensor.nbytes for tensor in case.outputs)
    return Cost(2.0 * rows * n * k, nbytes)


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw operands, scales that bring results to order one, and a group list that sums to the active rows."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    tensors = {
        name: _draw(make, name, spec, case) for name, spec in case.tensors.items() if name != "group_list"
    }
    return Inputs({**tensors, "group_list": make_group_list(case, device)})


def _draw(make: ValueMaker, name: str, tensor: TensorSpec, case: Case) -> Tensor:
    unit = case_sizes(case, "k")[0] ** -0.5
    if name == "scale":
        low, high = 0.5 * unit / 127, 1.5 * unit / 127
        if tensor.dtype in ("INT64", "UINT64"):
            return pack_scales(make.uniform(TensorSpec(tensor.shape, "FLOAT"), low, high))
        return make.uniform(tensor, low, high)
    if name == "antiquant_scale":
        return make.uniform(tensor, 0.5 * unit / 73, 1.5 * unit / 73)  # int8 over its range deviates by 73
    if name == "antiquant_offset":
        return make.integers(tensor, -4, 5)
    if name == "per_token_scale":
        return make.uniform(tensor, 2.5 / 127, 4.5 / 127)
    if tensor.dtype == "INT8":
        return make.integers(tensor, -127, 128)
    if tensor.dtype == "INT32":
        return make.integers(tensor, -1024, 1025)
    return make.normal(tensor, unit if name == "weight" else 1.0)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, one product per group with rows elsewhere."""
    if device.family == "ascend":
        (rows,) = case_sizes(case, "active_rows")
        # The kernel leaves rows past the last group as they were.
        return Kernel(call=_ascend_call(case, inputs, device), outputs=lambda y: (_padded(y, rows),))
    spans = group_spans(inputs["group_list"], case_sizes(case, "group_list_type")[0])
    return Kernel(call=bind_groups(case, inputs, spans))


def _padded(result: object, rows: int) -> Tensor:
    y: Tensor = result[0].clone()  # type: ignore[index]  # npu_grouped_matmul returns a list
    y[rows:] = 0
    return y


def _ascend_call(case: Case, inputs: Inputs, device: Device) -> Callable[[], list[Tensor]]:
    import torch_npu

    weight = cast_to_nz(inputs["weight"], case.tensors["weight"], device)
    weight = weight.transpose(1, 2) if case.params["transpose_b"] else weight
    optional = {name: [inputs[name]] for name in _OPTIONAL if name in case.tensors}
    if "scale" in optional and not inputs["scale"].is_floating_point():
        optional["scale"] = [ascend_scale(inputs["scale"])]
    (list_type,) = case_sizes(case, "group_list_type")
    return lambda: torch_npu.npu_grouped_matmul(
        [inputs["x"]],
        [weight],
        group_list=inputs["group_list"],
        split_item=3,
        group_type=0,
        group_list_type=list_type,
        output_dtype=torch_dtype(str(case.params["out_dtype"])),
        **optional,
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Multiply each row by the weight of its own group in fp64."""
    y = grouped_reference(case, inputs)
    rounded_twice = bool({"bias", "antiquant_scale"} & set(case.tensors))
    tolerance = product_tolerance(str(case.params["out_dtype"]), rounded_twice=rounded_twice)
    return quantised_reference((y,), (tolerance,))
