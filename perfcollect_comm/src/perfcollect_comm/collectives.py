"""The collectives perfcollect measures: names, files, and what their message size means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from perfcollect_core.errors import UsageError

__all__ = [
    "COLLECTIVES",
    "DTYPES",
    "Collective",
    "CommDtype",
    "MessageSize",
    "bandwidths_gbps",
    "collective",
    "comm_dtype",
    "message_size",
    "message_sizes",
]


@attrs.frozen
class Collective:
    """One collective.

    ``message_bytes`` (m) of the tables means, for a group of n ranks: the tensor (all_reduce, broadcast), one rank's
    input (all_gather), one rank's output (reduce_scatter), all that one rank sends, its own chunk included
    (all_to_all). ``inputs_per_message`` and ``outputs_per_message`` say whether a rank's buffer is m or n * m.
    """

    name: str
    kernel_type: str
    input_is_n_messages: bool = False
    output_is_n_messages: bool = False
    splits_message: bool = False
    reduces: bool = False

    @property
    def file_name(self) -> str:
        return f"{self.kernel_type}.csv"

    def bus_factor(self, n: int) -> float:
        """Return busbw / algbw: how often a byte crosses a link of the slowest rank in the ideal algorithm."""
        if self.name == "broadcast":
            return 1.0
        return (2.0 if self.name == "all_reduce" else 1.0) * (n - 1) / n


COLLECTIVES: Mapping[str, Collective] = {
    item.name: item
    for item in (
        Collective("all_reduce", "hcom_allReduce_", reduces=True),
        Collective("all_gather", "hcom_allGather_", output_is_n_messages=True),
        Collective("reduce_scatter", "hcom_reduceScatter_", input_is_n_messages=True, reduces=True),
        # alltoallv_ is the list call with equal chunks, alltoall_ the single-tensor call; the consumers read both.
        Collective("all_to_all", "hcom_alltoallv_", splits_message=True),
        Collective("all_to_all_single", "hcom_alltoall_", splits_message=True),
        Collective("broadcast", "hcom_broadcast_"),
    )
}


@attrs.frozen
class CommDtype:
    """A dtype of a message: torch's name, the spelling of the tables, bytes an element."""

    name: str
    table: str
    nbytes: int


DTYPES: Mapping[str, CommDtype] = {
    item.name: item
    for item in (
        CommDtype("bfloat16", "DT_BF16", 2),
        CommDtype("float16", "DT_FP16", 2),
        CommDtype("float32", "DT_FLOAT", 4),
        CommDtype("int8", "DT_INT8", 1),
    )
}


def collective(name: str) -> Collective:
    """Return the collective called *name*, or of that kernel type (``hcom_allReduce_``)."""
    wanted = name.removesuffix(".csv").lower().replace("-", "_")
    for item in COLLECTIVES.values():
        if wanted in (item.name, item.kernel_type.lower()):
            return item
    raise UsageError(f"no collective {name!r}", hint=f"the collectives are {', '.join(COLLECTIVES)}")


def comm_dtype(name: str) -> CommDtype:
    """Return the dtype of *name* (``torch.bfloat16``, ``bfloat16`` or the tables' ``DT_BF16``)."""
    word = name.strip().removeprefix("torch.")
    for item in DTYPES.values():
        if word in (item.name, item.table):
            return item
    raise UsageError(f"no message dtype {name!r}", hint=f"the dtypes are {', '.join(DTYPES)}")


@attrs.frozen
class MessageSize:
    """Bytes of one configuration as asked and as really moved.

    ``nccl_bytes`` is the size S of nccl-tests and hccl_test: the larger of the two buffers.
    """

    asked: int
    message_bytes: int
    rank_input_bytes: int
    rank_output_bytes: int
    nccl_bytes: int

    @property
    def rounded(self) -> bool:
        return self.asked != self.message_bytes

    @property
    def rank_bytes(self) -> int:
        """Bytes of buffers one rank holds for it."""
        return self.rank_input_bytes + self.rank_output_bytes


def message_size(op: Collective, n: int, element_bytes: int, asked: int) -> MessageSize:
    """Round *asked* bytes up to what *op* can move among *n* ranks, at least one element (a rank's chunk each)."""
    if asked < 1:
        raise UsageError(
            f"message size {asked} B, expected at least 1 B", hint="give positive sizes to --bytes-grid"
        )
    quantum = element_bytes * (n if op.splits_message else 1)
    moved = -(-asked // quantum) * quantum
    rank_in = moved * (n if op.input_is_n_messages else 1)
    rank_out = moved * (n if op.output_is_n_messages else 1)
    return MessageSize(asked, moved, rank_in, rank_out, max(rank_in, rank_out))


def message_sizes(
    op: Collective, n: int, element_bytes: int, asked: Iterable[int]
) -> tuple[tuple[MessageSize, ...], tuple[int, ...]]:
    """Return the sizes to measure, ascending, and the asked ones dropped because rounding made them equal."""
    found: dict[int, MessageSize] = {}
    dropped = []
    for size in sorted(set(asked)):
        rounded = message_size(op, n, element_bytes, size)
        if rounded.message_bytes in found:
            dropped.append(size)
            # The size that needed no rounding names the configuration.
            if not rounded.rounded:
                dropped[-1] = found[rounded.message_bytes].asked
                found[rounded.message_bytes] = rounded
        else:
            found[rounded.message_bytes] = rounded
    return tuple(found.values()), tuple(dropped)


def bandwidths_gbps(op: Collective, n: int, message_bytes: int, duration_us: float) -> tuple[float, float]:
    """Return (algbw, busbw) in GB/s, decimal: S / t, and the load of the busiest link."""
    size = message_size(op, n, 1, message_bytes).nccl_bytes if not op.splits_message else message_bytes
    algbw = size / duration_us / 1e3
    return algbw, algbw * op.bus_factor(n)
