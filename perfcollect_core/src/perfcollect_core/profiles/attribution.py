"""Find which device tasks of a profile are the launches of which case: by time, kernel type and signature.

Pure functions. A case is bracketed by host times with the device idle around them; inside its brackets the tasks of
its kernel with its tensors are counted against what was launched. Whatever does not fit is said and never guessed:
nothing is split by position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from perfcollect_core.environment import TaskRecord
from perfcollect_core.tensors import Signature

from .layouts import counters_in
from .numbers import is_missing, parse_number
from .op_summary import core_of
from .resemblance import RESEMBLANCES, Resemblance, resemblance

__all__ = [
    "SLACK_NS",
    "Attributed",
    "Attribution",
    "Bracket",
    "Expected",
    "Unfit",
    "attribute",
    "describe_seen",
]

#: How far the device's clock may be off the host's. Workers keep the device idle for longer than twice this.
SLACK_NS = 400_000

_MAX_SEEN = 6


@attrs.frozen
class Bracket:
    """Host epoch nanoseconds around *launches* launches."""

    start_ns: int
    end_ns: int
    launches: int


@attrs.frozen(eq=False)
class Expected:
    """One visit to a case, as the worker reports it.

    Attributes:
        number: What the answer is found by.
        brackets: When it was launched.
        kernels: Kernel types that count as the case's: its operator, then its aliases.
        signature: The tensors its row records.
        canonical: Gives the key of a task's cells, ``None`` where it has none; equal keys are equal work.
        key: The key of the row.
        per_call: Tasks of the kernel one call makes.
        companions: Further kernel types one call launches; they are neither helpers nor counted.
        device: Device whose tasks count; ``None``: those of any.
    """

    number: int
    brackets: tuple[Bracket, ...]
    kernels: tuple[str, ...]
    signature: Signature
    canonical: Callable[[Mapping[str, str]], tuple[str, ...] | None]
    key: tuple[str, ...]
    per_call: int = 1
    companions: frozenset[str] = frozenset()
    device: int | None = None

    @property
    def launches(self) -> int:
        return sum(bracket.launches for bracket in self.brackets)


@attrs.frozen
class Attributed:
    """The tasks of one visit: one duration a task in the order of time, and what ran.

    ``helpers`` counts the other tasks in its brackets; ``resemblance`` says how the tensors were recognised.
    """

    durations_us: tuple[float, ...]
    kernel: str
    core: str
    counters: Mapping[str, tuple[float, ...]]
    resemblance: Resemblance
    helpers: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Unfit:
    """Why the tasks of a visit are not known; ``seen`` counts the tasks in its brackets by kernel type."""

    why: Literal["nothing", "lost", "extra", "ambiguous", "other_tensors", "no_duration"]
    reason: str
    seen: Mapping[str, int]


@attrs.frozen
class Attribution:
    """What was found for each visit; ``leftovers`` counts the tasks in no bracket (warm-up, inputs, helpers)."""

    found: Mapping[int, Attributed]
    unfit: Mapping[int, Unfit]
    leftovers: Mapping[str, int]


def attribute(
    tasks: Sequence[TaskRecord], visits: Sequence[Expected], *, slack_ns: int = SLACK_NS
) -> Attribution:
    """Give each of *visits* its tasks, or the reason why not.

    Args:
        tasks: Tasks of one session, of several devices and streams.
        visits: Visits whose brackets do not overlap on one device.
        slack_ns: How far the clocks of device and host may be apart.
    """
    ordered = sorted((task for task in tasks if task.start_ns), key=lambda task: task.start_ns)
    starts = [task.start_ns for task in ordered]
    edges = sorted((b.start_ns, b.end_ns) for visit in visits for b in visit.brackets)
    taken: set[int] = set()
    found: dict[int, Attributed] = {}
    unfit: dict[int, Unfit] = {}
    for visit in visits:
        inside: list[tuple[TaskRecord, ...]] = []
        for bracket in visit.brackets:
            low, high = _widened(bracket, edges, slack_ns)
            first, last = bisect_left(starts, low), bisect_left(starts, high)
            indices = [i for i in range(first, last) if visit.device in (None, ordered[i].device)]
            taken.update(indices)
            inside.append(tuple(ordered[i] for i in indices))
        answer = _judge(visit, inside)
        if isinstance(answer, Unfit):
            unfit[visit.number] = answer
        else:
            found[visit.number] = answer
    leftovers = Counter(task.kernel for index, task in enumerate(ordered) if index not in taken)
    leftovers.update(task.kernel for task in tasks if not task.start_ns)
    return Attribution(found, unfit, dict(leftovers))


def _widened(bracket: Bracket, edges: Sequence[tuple[int, int]], slack_ns: int) -> tuple[int, int]:
    """Return the bracket with its slack, never past the middle of the gap to a neighbour."""
    low, high = bracket.start_ns - slack_ns, bracket.end_ns + slack_ns
    at = bisect_left(edges, (bracket.start_ns, bracket.end_ns))
    before = edges[at - 1][1] if at else None
    if before is not None and before <= bracket.start_ns:
        low = max(low, (before + bracket.start_ns + 1) // 2)
    after = next((start for start, _ in edges[at + 1 : at + 2]), None)
    if after is not None and after >= bracket.end_ns:
        high = min(high, (bracket.end_ns + after + 1) // 2)
    return low, high


def _judge(visit: Expected, inside: Sequence[Sequence[TaskRecord]]) -> Attributed | Unfit:
    seen = Counter(task.kernel for tasks in inside for task in tasks)
    candidates = [task for tasks in inside for task in tasks if task.kernel in visit.kernels]
    if not candidates:
        return Unfit("nothing", f"no {_names(visit.kernels)} among the tasks of its {_launches(visit)}", seen)
    likeness = _alike(visit, candidates)
    best = next((kind for kind in RESEMBLANCES if kind in likeness.values()), None)
    if best is None:
        tensors = Counter(_tensors(task) for task in candidates).most_common(1)[0][0]
        return Unfit("other_tensors", f"{candidates[0].kernel} ran with {tensors}", seen)
    own = [task for task in candidates if likeness[id(task)] == best]
    if best != "unrecorded" and any(kind == "unrecorded" for kind in likeness.values()):
        return Unfit("ambiguous", "some of its tasks have no recorded shapes beside ones that fit", seen)
    kernels = Counter(task.kernel for task in own)
    if len(kernels) > 1:
        both = ", ".join(f"{count} {kernel}" for kernel, count in sorted(kernels.items()))
        return Unfit("ambiguous", f"tasks of several kernels fit: {both}", seen)
    # Each bracket on its own: one lost task and one that is too many must not make up for each other.
    for bracket, tasks in zip(visit.brackets, inside, strict=True):
        count = sum(likeness.get(id(task)) == best for task in tasks)
        wanted = bracket.launches * visit.per_call
        if count != wanted:
            words = (
                f"{len(own)} tasks of {own[0].kernel} fit, {visit.launches * visit.per_call} were launched"
            )
            return Unfit("lost" if count < wanted else "extra", words, seen)
    if best == "unrecorded" and len(seen - Counter(kernels)) and _twins(visit, seen):
        return Unfit("ambiguous", "its shapes are not recorded and further tasks may be its own", seen)
    durations = [task.duration_us for task in own]
    if any(value is None for value in durations):
        bad = sum(value is None for value in durations)
        return Unfit("no_duration", f"{bad} of its {len(own)} tasks have no usable duration", seen)
    kernel = own[0].kernel
    helpers = seen - kernels
    return Attributed(
        durations_us=tuple(value for value in durations if value is not None),
        kernel=kernel,
        core=Counter(filter(None, map(core_of, own))).most_common(1)[0][0] if any(map(core_of, own)) else "",
        counters=_counters(own),
        resemblance=best,
        helpers={name: n for name, n in helpers.items() if name not in visit.companions},
    )


def _alike(visit: Expected, candidates: Sequence[TaskRecord]) -> dict[int, Resemblance | None]:
    known: dict[tuple[str, ...], Resemblance | None] = {}
    found = {}
    for task in candidates:
        spelling = _spelling(task)
        if spelling not in known:
            known[spelling] = resemblance(task.cells, visit.signature, visit.canonical, visit.key)
        found[id(task)] = known[spelling]
    return found


def _twins(visit: Expected, seen: Mapping[str, int]) -> bool:
    """Tell whether tasks of another name of the same kernel are in the brackets too."""
    return sum(count > 0 for name, count in seen.items() if name in visit.kernels) > 1


_SPELLED = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types")


def _spelling(task: TaskRecord) -> tuple[str, ...]:
    return tuple(task.cells.get(column, "") for column in _SPELLED)


def _tensors(task: TaskRecord) -> str:
    cells = task.cells
    plain = {name: cells.get(name, "").strip('"') for name in _SPELLED}
    return (
        f"{plain['Input Shapes']} {plain['Input Data Types']} {plain['Input Formats']} -> "
        f"{plain['Output Shapes']} {plain['Output Data Types']}"
    )


def _counters(tasks: Sequence[TaskRecord]) -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for name in counters_in(tasks[0].cells):
        texts = [task.cells.get(name) for task in tasks]
        numbers = [parse_number(text) for text in texts if not is_missing(text)]
        present = tuple(number for number in numbers if number is not None)
        if present:
            found[name] = present
    return found


def _names(kernels: Sequence[str]) -> str:
    return kernels[0] if len(kernels) == 1 else f"{kernels[0]} (or {', '.join(kernels[1:])})"


def _launches(visit: Expected) -> str:
    return f"{visit.launches} launch{'' if visit.launches == 1 else 'es'}"


def describe_seen(seen: Mapping[str, int]) -> str:
    """Say which kernels were seen and how often."""
    listed = sorted(seen.items(), key=lambda entry: (-entry[1], entry[0]))
    words = ", ".join(f"{count} {kernel}" for kernel, count in listed[:_MAX_SEEN])
    more = len(listed) - _MAX_SEEN
    return (words + (f" and {more} more" if more > 0 else "")) or "nothing"
