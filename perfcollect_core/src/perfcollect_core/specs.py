"""What an operator says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from .cases import Row
from .environment import Need

__all__ = ["Axis", "GridRequest", "OperatorSpec", "ProfileColumn", "Slot", "Workload"]


@attrs.frozen
class Slot:
    """One positional input or output: ``metadata`` slots are recorded by the profiler but never built."""

    name: str
    text: str = ""
    optional: bool = False
    metadata: bool = False


@attrs.frozen
class ProfileColumn:
    """A column ``parse`` fills: from the shape of an input *slot*, from the profile's *source*, or a constant."""

    name: str
    slot: int | None = None
    source: str = ""
    value: str = ""


@attrs.frozen
class Axis:
    """One dimension a theory grid varies: how to read it off a row and which values it takes.

    Attributes:
        name: What messages call it.
        extract: Reads it off a row, ``None`` where the row does not have it.
        anchors: Required values, beside those of the standard.
        continuous: Whether the consumer interpolates along it; others must hit exactly.
        standard: Axis of the density standard whose range, spacing and required values it keeps; empty: none.
        low, high: The part of the standard's range it promises; 0: the standard's own end.
        own_range: Whether each bucket is judged between its own ends, because a limit of the kernel moves them.
    """

    name: str
    extract: Callable[[Row], int | None]
    anchors: tuple[int, ...] = ()
    continuous: bool = True
    standard: str = ""
    low: int = 0
    high: int = 0
    own_range: bool = False


@attrs.frozen
class Workload:
    """What serving is asked for: *batch* sequences of *seq* tokens each, as one prefill and as decode steps."""

    batch: int
    seq: int


@attrs.frozen
class GridRequest:
    """What ``perfcollect grid`` asks of an operator's rule.

    Attributes:
        models: Shapes of the models (``perfcollect_core.grid.models.ModelShapes``).
        tp: Tensor-parallel degrees; empty: each model's own.
        ep: Expert-parallel degrees; empty: each model's own.
        max_bytes: Bytes a row may need, 0 for any.
        targeted: The models were named: rules that can are limited to their shapes, others add their widths.
        workloads: Ask for exactly the rows of these workloads instead of a grid.
    """

    models: tuple[object, ...] = ()
    tp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    max_bytes: int = 0
    targeted: bool = False
    workloads: tuple[Workload, ...] = ()


@attrs.frozen
class OperatorSpec:
    """Facts about one kernel type, read without torch.

    Attributes:
        name: Kernel type as it stands in the data.
        summary: What it computes, one line.
        api: What launches it, by family (``{"ascend": "torch.mm", "cpu": "torch.mm"}``).
        families: Device families the binding supports.
        inputs: Input slots in the kernel's definition order.
        outputs: Output slots.
        aliases: Other kernel types whose rows this operator replays and whose samples fill its rows.
        match_only: Samples fill rows but never append any (the MatMul family).
        kernels: Kernel types one call launches where that is more than ``name``.
        required_columns: Columns its tables must have.
        key_columns: Metadata columns that tell rows of equal shapes apart.
        profile_columns: Columns ``parse`` adds.
        axes: Theory axes.
        needs: What the machine must have.
        ranks: Processes one call needs; ``None`` where the row says.
        value_policy: What its input values are like and why they are representative.
        assumptions: What is assumed where the row does not record it.
        negative: Rows that must end as ``invalid_case``, as example cells.
        examples: Realistic rows, as cells by column.
    """

    name: str
    summary: str = ""
    api: Mapping[str, str] = attrs.field(factory=dict)
    families: tuple[str, ...] = ("ascend", "cuda", "cpu")
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    aliases: tuple[str, ...] = ()
    match_only: bool = False
    kernels: tuple[str, ...] = ()
    required_columns: tuple[str, ...] = ("Input Shapes", "Output Shapes")
    key_columns: tuple[str, ...] = ()
    profile_columns: tuple[ProfileColumn, ...] = ()
    axes: tuple[Axis, ...] = ()
    needs: tuple[Need, ...] = ()
    ranks: int | None = 1
    value_policy: str = ""
    assumptions: tuple[str, ...] = ()
    negative: tuple[Mapping[str, str], ...] = ()
    examples: tuple[Mapping[str, str], ...] = ()
