"""What an operator says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from .cases import Row
from .environment import Need

__all__ = ["Axis", "GridRequest", "OperatorSpec", "ProfileColumn", "Slot"]


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

    ``anchors`` are required values; ``continuous`` axes are interpolated by the consumer, others must hit exactly.
    """

    name: str
    extract: Callable[[Row], int | None]
    anchors: tuple[int, ...] = ()
    continuous: bool = True


@attrs.frozen
class GridRequest:
    """What ``perfcollect grid`` asks of an operator's rule."""

    models: tuple[object, ...] = ()
    tp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    max_bytes: int = 0


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
