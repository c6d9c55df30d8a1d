"""Replay of RINGMLAPrefillBF16Kernel: MLA prefill attention that merges with an earlier partial result."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Need,
    OperatorSpec,
    Reference,
    Row,
    Signature,
    Skip,
    Slot,
    TensorSpec,
    ValueMaker,
    default_case,
    example_row,
    parse_signature,
    read_examples,
)
from perfcollect_core.lengths import (
    KEY_LENGTHS_COLUMN,
    QUERY_LENGTHS_COLUMN,
    case_lengths,
    even_lengths,
    integer_column,
    query_lengths,
    read_integers,
    split_lengths,
)
from perfcollect_core.tensors import format_shape

from .theory.attention import RING_AXES
from .theory.attention import ring_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_ATB = "install NNAL and source its set_env.sh (…/nnal/atb/set_env.sh), then start again"
_NAMES = {
    0: "q_nope",
    1: "q_rope",
    2: "k_nope",
    3: "k_rope",
    4: "value",
    5: "mask",
    13: "pre_out",
    14: "prev_lse",
}
_FIRST = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch.nn.functional.scaled_dot_product_attention and a merge by log-sum-exp"
    unused = tuple(
        Slot(f"unused_{index}", "always blank", optional=True, metadata=True) for index in range(6, 13)
    )
    return OperatorSpec(
        name="RINGMLAPrefillBF16Kernel",
        summary="MLA prefill attention with expanded heads, its log-sum-exp, merged with an earlier chunk's",
        api={"ascend": "torch_npu.atb.npu_ring_mla", "cuda": stock, "cpu": stock},
        inputs=(
            Slot("q_nope", "[Tq,N,128]"),
            Slot("q_rope", "[Tq,N,64]"),
            Slot("k_nope", "[Tk,N,128]"),
            Slot("k_rope", "[Tk,N,64]"),
            Slot("value", "[Tk,N,128]"),
            Slot("mask", "[512,512], first ring only", optional=True),
            *unused,
            Slot("pre_out", "[Tq,N,128], when merging", optional=True),
            Slot("prev_lse", "[N,Tq], when merging", optional=True),
        ),
        outputs=(Slot("out", "[Tq,N,128]"), Slot("lse", "[N,Tq] fp32")),
        key_columns=(QUERY_LENGTHS_COLUMN, KEY_LENGTHS_COLUMN, "Runtime mask_type", "Runtime batch_size"),
        needs=(Need("library", "libatb.so", _ATB),),
        axes=RING_AXES,
        value_policy=(
            "queries, keys and values N(0, 1); mask the upper triangle; pre_out and prev_lse the real result of an "
            "earlier chunk of 256 random keys"
        ),
        assumptions=(
            "sequences=1 where neither lengths nor 'Runtime batch_size' are recorded",
            "mask_type: triu with a mask, none without",
            "scale=192^-0.5",
        ),
        negative=(
            example_row("64,16,128;64,16,32;64,16,128;64,16,64;64,16,128;512,512", _FIRST, "64,16,128;16,64", "DT_BF16;FLOAT"),
            example_row("64,16,128;64,16,64;32,16,128;32,16,64;32,16,128;512,512", _FIRST, "64,16,128;16,64", "DT_BF16;FLOAT"),
            example_row("64,16,128;64,16,64;64,16,128;64,16,64;64,16,128;512,512", _FIRST, "64,16,128;64,16", "DT_BF16;FLOAT"),
            example_row(
                "64,16,128;64,16,64;64,16,128;64,16,64;64,16,128;;;;;;;;;64,16,128",
                "DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;;;;;;;;;DT_BF16", "64,16,128;16,64", "DT_BF16;FLOAT",
            ),
        ),
        examples=read_examples("perfcollect_ops_vllm_ascend", "operators/ring_mla_prefill_bf16_kernel.csv"),
    )  # fmt: skip


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        _check_shapes(signature)
        causal = _is_causal(row, signature, assumptions)
        queries, keys = _lengths(row, signature, causal, assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    merge = not signature.input(13).is_absent
    params = {"q_lengths": queries, "kv_lengths": keys, "causal": causal, "merge": merge, "scale": 192**-0.5}
    assumptions.append("scale=192^-0.5 (not recorded, timing-neutral)")
    tensors = {
        name: signature.input(index) for index, name in _NAMES.items() if not signature.input(index).is_absent
    }
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _check_shapes(signature: Signature) -> None:
    query, key = signature.input(0).shape or (), signature.input(2).shape or ()
    if len(query) != 3 or query[2] != 128:
        raise ValueError(f"slot 0 (q_nope) is {format_shape(query) or 'blank'}, expected T,N,128")
    if len(key) != 3 or key[2] != 128 or not key[1] or query[1] % key[1]:
        raise ValueError(
            f"slot 2 (k_nope) is {format_shape(key) or 'blank'}, expected T,N,128 with heads dividing {query[1]}"
        )
    expected: dict[int, tuple[int, ...]] = {1: (*query[:2], 64), 3: (*key[:2], 64), 4: key}
    merge = [index for index in (13, 14) if signature.input(index).shape is not None]
    if merge:
        expected |= {13: query, 14: (query[1], query[0])}
    elif signature.input(5).shape is not None:
        expected[5] = (512, 512)
    for index, wanted in expected.items():
        found = signature.input(index).shape
        if found != wanted:
            text = format_shape(found) or "blank"
            raise ValueError(f"slot {index} ({_NAMES[index]}) is {text}, expected {format_shape(wanted)}")
    outputs: dict[int, tuple[int, ...]] = {0: query, 1: (query[1], query[0])}
    for index, wanted in outputs.items():
        found = signature.output(index).shape
        if found != wanted:
            text = format_shape(found) or "blank"
            raise ValueError(f"output slot {index} is {text}, expected {format_shape(wanted)}")


def _is_causal(row: Row, signature: Signature, assumptions: list[str]) -> bool:
    recorded = row.get("Runtime mask_type")
    if recorded and recorded not in ("mask_type_triu", "no_mask"):
        raise ValueError(f"column 'Runtime mask_type' is {recorded!r}, expected mask_type_triu or no_mask")
    masked = signature.input(5).shape is not None
    if not recorded:
        assumptions.append(f"mask_type={'mask_type_triu' if masked else 'no_mask'} (by slot 5)")
    elif (recorded == "mask_type_triu") != masked:
        raise ValueError(
            f"column 'Runtime mask_type' is {recorded!r} and slot 5 (mask) is {'set' if masked else 'blank'}"
        )
    return masked


def _lengths(
    row: Row, signature: Signature, causal: bool, assumptions: list[str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    tokens, total = (signature.input(0).shape or (0,))[0], (signature.input(2).shape or (0,))[0]
    recorded = read_integers(row.get(QUERY_LENGTHS_COLUMN))
    count = integer_column(row, "Runtime batch_size") or 1
    queries = query_lengths(recorded, tokens, len(recorded) or count, QUERY_LENGTHS_COLUMN)
    if not recorded:
        assumptions.append(f"sequences={count} (query lengths not recorded: {tokens} tokens split evenly)")
    keys = read_integers(row.get(KEY_LENGTHS_COLUMN))
    split = split_lengths(keys, total) if keys else None
    if keys and (split is None or len(split) != len(queries.values)):
        raise ValueError(
            f"column {KEY_LENGTHS_COLUMN!r} sums to {sum(keys)}, expected the {total} keys of slot 2 in "
            f"{len(queries.values)} sequences"
        )
    if split is None:
        split = queries.values if total == tokens else even_lengths(total, len(queries.values))
    # The kernel takes no sequence with fewer keys than queries, except none at all when it merges.
    for index, (q, kv) in enumerate(zip(queries.values, split, strict=True)):
        if kv < q and (kv or causal):
            raise ValueError(
                f"slot 2 (k_nope) gives sequence {index} {kv} keys for {q} queries, expected as many or more"
            )
    return queries.values, split


def perfcollect_estimate_cost(case: Case) -> Cost:
    tokens, heads, _ = case.tensors["q_nope"].shape or (0, 0, 0)
    pairs = sum(
        q * kv - (q * (q - 1) // 2 if case.params["causal"] else 0)
        for q, kv in zip(*case_lengths(case), strict=True)
    )
    flops = 2.0 * heads * pairs * (192 + 128) + (6.0 * tokens * heads * 128 if case.params["merge"] else 0)
    moved = sum(tensor.nbytes for name, tensor in case.tensors.items() if name != "mask")
    return Cost(flops, float(moved + sum(tensor.nbytes for tensor in case.outputs)))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    from .ring_attention import earlier_chunk

    make = ValueMaker(case.seed, device)
    tensors: dict[str, Tensor] = {}
    for name, spec in case.tensors.items():
        if name == "mask":
            # Only its dtype differs from what serving passes; ones above the diagonal hide.
            tensors[name] = make.tensor(_triangle(spec), spec.dtype)
        elif name not in ("pre_out", "prev_lse"):
            tensors[name] = make.by_dtype(spec)
    if case.params["merge"]:
        out, lse = earlier_chunk(
            tensors["q_nope"], tensors["q_rope"], make, cast("float", case.params["scale"])
        )
        tensors |= {"pre_out": out, "prev_lse": lse}
    return Inputs(tensors)


def _triangle(spec: TensorSpec) -> Tensor:
    import torch

    return torch.ones(spec.shape or (1, 1)).triu(1)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    from .ring_attention import bind_torch

    return _bind_ascend(case, inputs) if device.family == "ascend" else bind_torch(case, inputs)


def _bind_ascend(case: Case, inputs: Inputs) -> Kernel:
    import torch
    import torch_npu

    queries, keys = case_lengths(case)
    # Lengths stay on the host; a call without mask wants those of the keys as well.
    lengths = [queries] if case.params["causal"] and not case.params["merge"] else [queries, keys]
    # A mask has to be passed even where it is not used (and then not recorded).
    mask = inputs.tensors.get("mask")
    if mask is None:
        mask = torch.ones(512, 512, dtype=inputs["q_nope"].dtype, device=inputs["q_nope"].device).triu(1)
    arguments: dict[str, object] = {
        **inputs.tensors,
        "mask": mask,
        "seqlen": torch.tensor(lengths, dtype=torch.int32).squeeze(0),
        "head_num": inputs["q_nope"].shape[1],
        "kv_head_num": inputs["k_nope"].shape[1],
        "qk_scale": case.params["scale"],
        "kernel_type": "kernel_type_high_precision",
        "mask_type": "mask_type_triu" if case.params["causal"] else "no_mask",
        "input_layout": "type_bsnd",
        "calc_type": "calc_type_default" if case.params["merge"] else "calc_type_first_ring",
    }
    return Kernel(lambda: torch_npu.atb.npu_ring_mla(**arguments))


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    from .ring_attention import ring_reference

    return ring_reference(case, inputs)
