"""Replay of ReshapeAndCacheNdKernel: scatter the keys and values of new tokens into paged caches."""

from __future__ import annotations

import math
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
    Skip,
    Slot,
    Tolerance,
    ValueMaker,
    default_case,
    example_row,
    read_examples,
    slot_mapping,
)
from perfcollect_core.checking import scatter_difference
from perfcollect_core.lengths import (
    QUERY_LENGTHS_COLUMN,
    integer_column,
    lengths_key,
    read_integers,
    split_lengths,
    tensor_key,
)
from perfcollect_core.tensors import NZ, format_shape

from .theory.attention import CACHE_AXES
from .theory.attention import cache_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT32"
_ATB = "install NNAL and source its set_env.sh (…/nnal/atb/set_env.sh), then start again"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch.Tensor.index_copy_"
    return OperatorSpec(
        name="ReshapeAndCacheNdKernel",
        summary="cache[slot // block, slot % block] = row, for the keys and values of new tokens, in place",
        api={"ascend": "torch_npu._npu_reshape_and_cache", "cuda": stock, "cpu": stock},
        inputs=(
            Slot("key", "[T,N,Dk]"),
            Slot("value", "[T,N,Dv]"),
            Slot("key_cache", "[blocks,bs,N,Dk]"),
            Slot("value_cache", "[blocks,bs,N,Dv]"),
            Slot("slot_mapping", "[T], -1 for padding"),
        ),
        outputs=(Slot("key_cache", "the cache itself", optional=True), Slot("value_cache", optional=True)),
        key_columns=("Runtime index_pattern", "Runtime phase", "Runtime active_rows", QUERY_LENGTHS_COLUMN),
        needs=(Need("library", "libatb.so", _ATB),),
        axes=CACHE_AXES,
        value_policy=(
            "key and value N(0, 1); slots distinct: a random slot in a block of its own (decode), runs of consecutive "
            "slots through shuffled blocks (prefill), -1 past the active rows"
        ),
        assumptions=(
            "index_pattern: decode where every token can have a block of its own and there are at most 256, "
            "else prefill",
            "prefill is one sequence where lengths are not recorded",
        ),
        negative=(
            example_row("256,1,128;256,1,128;1,128,1,128;1,128,1,128;256", _DTYPES),
            example_row("16,1,128;16,1,128;64,128,1,64;64,128,1,128;16", _DTYPES),
            example_row("16,1,128;16,1,128;64,128,1,128;64,128,1,128;17", _DTYPES),
        ),
        examples=read_examples("perfcollect_ops_vllm_ascend", "operators/reshape_and_cache_nd_kernel.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    made = default_case(spec, row)
    if isinstance(made, Skip):
        return made
    assumptions: list[str] = []
    try:
        if made.tensors["key_cache"].format == NZ and made.tensors["value_cache"].format == NZ:
            return Skip("slots 2 and 3 (caches) are FRACTAL_NZ: another ATB kernel writes those")
        _check_shapes(made)
        params = _pattern(row, made, assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    return default_case(spec, row, params=params, assumptions=assumptions)


def _check_shapes(case: Case) -> None:
    shapes = {name: tensor.shape or () for name, tensor in case.tensors.items()}
    tokens, cache = shapes["key"][0], shapes["key_cache"]
    for index, name in ((1, "value"), (4, "slot_mapping")):
        if shapes[name][0] != tokens:
            raise ValueError(
                f"slot {index} ({name}) is {format_shape(shapes[name])}, expected {tokens} tokens as slot 0"
            )
    for index, name in ((2, "key"), (3, "value")):
        one, pool = shapes[name], shapes[f"{name}_cache"]
        if len(pool) < 3 or pool[:2] != cache[:2] or math.prod(pool[2:]) != math.prod(one[1:]):
            raise ValueError(
                f"slot {index} ({name}_cache) is {format_shape(pool)}, expected {format_shape(cache[:2])} blocks and "
                f"{format_shape(one[1:])} a slot"
            )
        if case.tensors[name].dtype != case.tensors[f"{name}_cache"].dtype:
            raise ValueError(
                f"slot {index} ({name}_cache) is {case.tensors[f'{name}_cache'].dtype}, expected "
                f"{case.tensors[name].dtype} as the rows"
            )
    if cache[0] * cache[1] < tokens:
        raise ValueError(
            f"slot 2 (key_cache) is {format_shape(cache)}: {cache[0] * cache[1]} slots, expected at least one for each "
            f"of {tokens} tokens"
        )


def _pattern(row: Row, case: Case, assumptions: list[str]) -> dict[str, object]:
    tokens, blocks = (case.tensors["key"].shape or (0,))[0], (case.tensors["key_cache"].shape or (0,))[0]
    active = integer_column(row, "Runtime active_rows")
    if active is not None and not 0 < active <= tokens:
        raise ValueError(
            f"column 'Runtime active_rows' is {active}, expected 1..{tokens} as slot 0 (key) holds"
        )
    active = active or tokens
    pattern = (row.get("Runtime index_pattern") or row.get("Runtime phase")).lower()
    if not pattern:
        pattern = "decode" if active <= min(256, blocks) else "prefill"
        assumptions.append(f"index_pattern={pattern} ({active} tokens, {blocks} blocks)")
    if pattern not in ("decode", "prefill"):
        raise ValueError(f"column 'Runtime index_pattern' is {pattern!r}, expected decode or prefill")
    lengths: tuple[int, ...] = ()
    if pattern == "prefill":
        recorded = read_integers(row.get(QUERY_LENGTHS_COLUMN))
        split = split_lengths(recorded, active) if recorded else (active,)
        if split is None:
            raise ValueError(
                f"column {QUERY_LENGTHS_COLUMN!r} ends at {recorded[-1]}, expected {active} tokens"
            )
        if not recorded:
            assumptions.append("sequences=1 (lengths not recorded)")
        lengths = split
    return {"pattern": pattern, "active": active, "lengths": lengths}


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    tensors = [
        tensor_key(name, tensor, (0,) if name.endswith("cache") else ())
        for name, tensor in sorted(made.tensors.items())
    ]
    lengths = cast("tuple[int, ...]", made.params["lengths"])
    return (spec.name, *tensors, str(made.params["pattern"]), lengths_key(lengths))


def perfcollect_estimate_cost(case: Case) -> Cost:
    moved = (
        2 * (case.tensors["key"].nbytes + case.tensors["value"].nbytes) + case.tensors["slot_mapping"].nbytes
    )
    return Cost(0.0, float(moved))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    import torch

    from perfcollect_core import TensorSpec

    make = ValueMaker(case.seed, device)
    tensors = {name: make.by_dtype(spec) for name, spec in case.tensors.items() if name != "slot_mapping"}
    blocks, size = tensors["key_cache"].shape[:2]
    spec, active = case.tensors["slot_mapping"], cast("int", case.params["active"])
    lengths = cast("tuple[int, ...]", case.params["lengths"]) if case.params["pattern"] == "prefill" else None
    if lengths and sum(-(-length // size) for length in lengths) > blocks:
        # The pool is too full for blocks of one's own: sequences follow one another.
        lengths = (active,)
    slots = slot_mapping(
        make, TensorSpec((active,), spec.dtype), blocks=blocks, block_size=size, lengths=lengths
    )
    tensors["slot_mapping"] = torch.nn.functional.pad(slots, (0, (spec.shape or (0,))[0] - active), value=-1)
    return Inputs(tensors)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    key, value, keys, values, slots = (inputs[name] for name in case.tensors)
    if device.family == "ascend":
        import torch_npu

        key, value = (rows.reshape(-1, *cache.shape[2:]) for rows, cache in ((key, keys), (value, values)))
        return Kernel(
            lambda: torch_npu._npu_reshape_and_cache(
                key=key, value=value, key_cache=keys, value_cache=values, slot_indices=slots
            ),
            lambda _: (keys, values),
        )
    active = cast("int", case.params["active"])
    where = slots[:active].to(torch.int64)
    pairs = [
        (cache.view(-1, cache[0, 0].numel()), rows[:active].reshape(active, -1))
        for rows, cache in ((key, keys), (value, values))
    ]

    def write() -> None:
        for cache, rows in pairs:
            cache.index_copy_(0, where, rows)

    return Kernel(write, lambda _: (keys, values))


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    active = cast("int", case.params["active"])
    slots = inputs["slot_mapping"][:active].cpu()
    before = [_rows(inputs[name]).clone() for name in ("key_cache", "value_cache")]
    rows = [inputs[name].cpu().reshape(len(inputs[name]), -1)[:active] for name in ("key", "value")]

    def compare(actual: tuple[Tensor | None, ...]) -> str | None:
        for slot, (cache, old, new) in enumerate(zip(actual, before, rows, strict=False)):
            if cache is None:
                return f"output {slot} is missing"
            wrong = scatter_difference(_rows(cache), old, slots, new, Tolerance(0, 0))
            if wrong:
                return f"output {slot}: {wrong}"
        return None

    return Reference((None, None), (Tolerance(0, 0),) * 2, compare)


def _rows(cache: Tensor) -> Tensor:
    return cache.reshape(cache.shape[0] * cache.shape[1], -1)
