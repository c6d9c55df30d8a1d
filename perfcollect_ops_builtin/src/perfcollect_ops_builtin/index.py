"""Replay of Index: advanced indexing of some axes by index tensors or a boolean mask."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Row,
    Skip,
    Slot,
    TensorSpec,
    Tolerance,
    ValueMaker,
    broadcast_shape,
    declare,
    example_row,
    parse_signature,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.cases import Param
from perfcollect_core.tensors import format_shape

from .theory.moves import INDEX_AXES, index_rows

if TYPE_CHECKING:
    from torch import Tensor

_INDICES = tuple(f"index{i}" for i in range(8))
_PATTERNS = ("distinct", "ramp", "uniform")


def _indices(case: Case) -> list[TensorSpec]:
    return [case.tensors[name] for name in _INDICES if name in case.tensors]


def _indexed(shape: tuple[int, ...], axes: tuple[int, ...], picked: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of advanced indexing: *picked* replaces adjacent axes, and leads where they are apart."""
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    at = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    return (*rest[:at], *picked, *rest[at:])


def _check(case: Case) -> Case | Skip:
    x, tensors, out = case.tensors["x"], _indices(case), case.signature.output()
    shape, mask = x.shape or (), case.signature.input(1)
    masked = tensors[0].dtype == "BOOL"
    count = len(tensors[0].shape or ()) if masked else len(tensors)
    listed = mask.numel or count
    for name, tensor in zip(_INDICES, tensors, strict=False):
        refused = refuse_dtype(name, tensor.dtype, ("BOOL",) if masked else ("INT32", "INT64"))
        if refused:
            return refused
    if not count or count > len(shape) or (not masked and count > listed) or (masked and len(tensors) > 1):
        return Skip.invalid(
            f"{len(tensors)} index tensors from slot 3 on, expected at most {min(listed, len(shape))} "
            f"(slot 1 masks {listed} axes, x has {len(shape)})"
        )
    picked = broadcast_shape(*(tensor.shape for tensor in tensors))
    if picked is None:
        shapes = " and ".join(format_shape(tensor.shape) for tensor in tensors)
        return Skip.invalid(f"index tensors have shapes {shapes}, which do not broadcast")
    if masked:
        return _check_mask(case, count)
    last = min(listed, len(shape))
    usual = tuple(range(last - count, last))
    others = sorted(combinations(range(len(shape)), count), key=lambda axes: axes != usual)
    axes = next((axes for axes in others if _indexed(shape, axes, picked) == out.shape), usual)
    assumptions = [] if axes == usual else [f"indexed axes={axes} (from the output; slot 1 says {usual})"]
    fits = picked and len(picked) == 1 and count == 1 and picked[0] <= shape[axes[0]]
    pattern = case.params.get("pattern") or ("distinct" if fits else "uniform")
    if pattern not in _PATTERNS or (pattern == "distinct" and not fits):
        return Skip.invalid(
            f"column 'Runtime index_pattern' is {pattern!r}, expected {' or '.join(_PATTERNS)} that fits x"
        )
    if "pattern" not in case.params:
        assumptions.append(f"index pattern={pattern} (not recorded)")
    refused = refuse_output(
        case.signature, 0, _indexed(shape, axes, picked), x.dtype, "x by its index tensors"
    )
    params: dict[str, Param] = {"axes": axes, "pattern": pattern}
    return refused or attrs.evolve(case, params=params, assumptions=tuple(assumptions))


def _check_mask(case: Case, rank: int) -> Case | Skip:
    shape, mask, out = case.tensors["x"].shape or (), case.tensors["index0"], case.signature.output()
    if out.shape is None:
        return Skip.invalid("output slot 0 is blank, expected the rows a BOOL index selects")
    for start in range(len(shape) - rank + 1):
        selected = out.shape[start] if start < len(out.shape) else 0
        if shape[start : start + rank] == mask.shape and out.shape == (
            *shape[:start],
            selected,
            *shape[start + rank :],
        ):
            break
    else:
        return Skip.invalid(
            f"input 'index0' has shape {format_shape(mask.shape)} and the output {format_shape(out.shape)}, "
            f"expected a BOOL mask of leading axes of x ({format_shape(shape)})"
        )
    if selected > mask.numel:
        return Skip.invalid(
            f"output slot 0 has {selected} rows, expected at most {mask.numel} (size of the BOOL mask)"
        )
    return attrs.evolve(case, params={"axes": (start,), "pattern": "mask", "selected": selected})


def _canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    try:
        signature = parse_signature(row.cells)
    except ValueError:
        return None
    kept = (signature.input(0), *signature.inputs[3:])
    pattern = tuple(row.get(column) for column in spec.key_columns)
    return (spec.name, *attrs.evolve(signature, inputs=kept).canonical(), *pattern)


def _draw(slot: int, make: ValueMaker, case: Case) -> Tensor:
    spec, axes = case.tensors[_INDICES[slot]], case.integers("axes")
    pattern = case.params["pattern"]
    if pattern == "mask":
        chosen = make.on_host().permutation(spec.numel) < case.integer("selected")
        return make.tensor(chosen.reshape(spec.shape or ()), spec.dtype)
    size = (case.tensors["x"].shape or ())[axes[slot]]
    if pattern == "ramp":
        import torch

        start = make.on_host().integers(TensorSpec((), "INT64"), 0, size)
        return make.tensor((torch.arange(spec.numel) + start) % size, spec.dtype).reshape(spec.shape or ())
    return make.distinct(spec, size) if pattern == "distinct" else make.integers(spec, 0, size)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    x, axes = inputs["x"], case.integers("axes")
    position: list[object] = [slice(None)] * (axes[-1] + 1)
    for axis, name in zip(axes, _INDICES, strict=False):
        position[axis] = inputs[name]
    key = tuple(position)
    return Kernel(call=lambda: x[key])


def _selected(case: Case, inputs: Inputs) -> tuple[Tensor]:
    import torch

    x, axes = inputs["x"], case.integers("axes")
    if case.params["pattern"] == "mask":
        mask = inputs["index0"]
        merged = x.flatten(axes[0], axes[0] + mask.dim() - 1)
        return (merged.index_select(axes[0], mask.flatten().nonzero().flatten()),)
    indices = torch.broadcast_tensors(*(inputs[name].long() for name in _INDICES[: len(axes)]))
    # One linear index over the indexed axes, moved to the front, instead of torch's own indexing.
    front = x.movedim(axes, tuple(range(len(axes))))
    linear = torch.zeros_like(indices[0])
    for size, index in zip(front.shape, indices, strict=False):
        linear = linear * size + index
    taken = front.flatten(0, len(axes) - 1).index_select(0, linear.flatten()).unflatten(0, linear.shape)
    at = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    return (taken.movedim(tuple(range(linear.dim())), tuple(at + i for i in range(linear.dim()))),)


def _cost(case: Case) -> Cost:
    x, out, indices = case.tensors["x"], case.signature.output(), _indices(case)
    axes = case.integers("axes")
    picked = broadcast_shape(*(tensor.shape for tensor in indices)) or ()
    shape = out.shape or _indexed(x.shape or (), axes, picked)
    return Cost(0.0, 2.0 * attrs.evolve(x, shape=shape).nbytes + sum(t.nbytes for t in indices))


index = declare(
    "Index",
    summary="advanced indexing of some axes of x",
    torch="torch.Tensor.__getitem__",
    inputs=(
        Slot("x"),
        Slot("indexed_sizes", "0/1 mask of leading axes, not built", metadata=True),
        Slot("indexed_strides", "as long as the output has axes, not built", metadata=True),
        Slot("index0", "INT32, INT64 or BOOL"),
        *(Slot(name, "one for each indexed axis", optional=True) for name in _INDICES[1:]),
    ),
    columns={"pattern": "Runtime index_pattern"},
    infer=_check,
    canonical_key=_canonical_key,
    values={name: partial(_draw, slot) for slot, name in enumerate(_INDICES)},
    call=_call,
    reference=_selected,
    tolerances=(Tolerance(0, 0),),
    cost=_cost,
    value_policy="indices over the whole axis: distinct in random order where they select rows, else uniform; 'ramp' is "
    "consecutive positions; a BOOL mask has as many true as the output has rows, scattered",
    assumptions=("the last axes slot 1 masks are the indexed ones", "index pattern"),
    negative=(
        example_row("64,1728;1;2;16", "DT_BF16;INT64;INT64;INT64", "17,1728", "DT_BF16"),
        example_row("64,1728;1;2;16;16", "DT_BF16;INT64;INT64;INT64;INT64", "16", "DT_BF16"),
    ),
    axes=INDEX_AXES,
    rows=index_rows,
    examples="operators/index.csv",
)
