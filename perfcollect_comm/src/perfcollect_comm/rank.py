"""One rank of a sweep: joins, creates the groups, and does what the coordinator asks.

Runs in a process of its own that the fork server made; torch is imported by then.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from perfcollect_core.errors import DataError

from .backend import CommBackend
from .control import Channel
from .pattern import expected_output, input_pattern, refill_interval
from .plan import CommPlan, Config
from .timers import time_calls

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

__all__ = ["RankSettings", "run_rank"]

_BEAT_SECONDS = 0.5


@attrs.frozen
class RankSettings:
    """Where a rank belongs and whom it talks to. ``store_port`` is the rendezvous store's, 0 to be told."""

    rank: int
    world: int
    local_rank: int
    node: int
    control: tuple[str, int]
    token: str
    op_timeout: float
    timer: str


class _Progress:
    """How many collective calls were begun; read by the heartbeat thread, written by the measuring one."""

    def __init__(self) -> None:
        self.entered = 0
        self.in_collective = False


def run_rank(settings: RankSettings, plan: CommPlan, backend: CommBackend) -> None:
    """Take part in a sweep until the coordinator ends it. Returns when it does, or when its connection closes."""
    channel = Channel(socket.create_connection(settings.control, timeout=60))
    progress = _Progress()
    lock = threading.Lock()

    def send(message: Mapping[str, object]) -> None:
        with lock:
            channel.send(message)

    send(
        {
            "rank": settings.rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "node": settings.node,
            "token": settings.token,
            "digest": plan.digest(),
        }
    )
    threading.Thread(target=_beat, args=(send, progress, threading.get_ident()), daemon=True).start()
    try:
        _serve(settings, plan, backend, channel, send, progress)
    except EOFError:
        raise
    except Exception as error:  # the boundary around a rank: the coordinator must learn why
        send({"error": f"{type(error).__name__}: {error}", "in_collective": progress.in_collective})
        # Stay connected: the coordinator decides who is to blame and closes.
        while channel.receive() is not None:
            pass


def _beat(send: Callable[[Mapping[str, object]], None], progress: _Progress, main_thread: int) -> None:
    while True:
        where, in_library = _position(main_thread)
        try:
            send({"beat": True, "entered": progress.entered, "where": where, "in_library": in_library})
        except OSError:
            return
        time.sleep(_BEAT_SECONDS)


def _position(thread: int) -> tuple[str, bool]:
    """Return where *thread* stands (``file:function``) and whether that is inside torch.distributed.

    A rank that waits for its peers stands in the library; one that holds them up stands anywhere else.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "", False
    where = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
    while frame is not None:
        if "/torch/distributed/" in frame.f_code.co_filename:
            return where, True
        frame = frame.f_back
    return where, False


def _serve(
    settings: RankSettings,
    plan: CommPlan,
    backend: CommBackend,
    channel: Channel,
    send: Callable[[Mapping[str, object]], None],
    progress: _Progress,
) -> None:
    device = backend.torch_device(settings.local_rank)
    groups: dict[tuple[int, ...], ProcessGroup] = {}
    work: _Work | None = None
    while True:
        message = channel.receive()
        if message is None:
            raise EOFError("the coordinator closed the connection before the end of the sweep")
        if message["do"] == "stop":
            return
        if message["do"] == "connect":
            groups = _connect(settings, plan, backend, (str(message["address"]), int(str(message["port"]))))
            answer: dict[str, object] = {"kind": "connected", "environment": dict(backend.environment())}
        else:
            config = plan.configs[int(str(message["config"]))]
            if message["do"] == "prepare":
                work, reason = _prepare(settings.rank, config, backend, groups, device, work)
                sent = work.source.numel() * work.source.element_size() if work else 0
                answer = {"kind": "ready", "reason": reason, "bytes": sent}
            else:
                assert work is not None
                try:
                    answer = _run(work, message, settings, backend, progress)
                except DataError as error:
                    progress.in_collective = False
                    answer = {"kind": "result", "samples_us": [], "wrong": 0, "reason": str(error)}
        send({**answer, "entered": progress.entered})


def _connect(
    settings: RankSettings, plan: CommPlan, backend: CommBackend, store_at: tuple[str, int]
) -> dict[tuple[int, ...], ProcessGroup]:
    import torch.distributed as dist

    # Longer than the watchdog, so that the coordinator names a stuck rank before the library gives up on it.
    timeout = timedelta(seconds=2 * settings.op_timeout + 30)
    store = dist.TCPStore(
        store_at[0], store_at[1], settings.world, is_master=settings.rank == 0, timeout=timeout
    )
    dist.init_process_group(
        backend.library, store=store, rank=settings.rank, world_size=settings.world, timeout=timeout
    )
    # Every rank creates every group, in the plan's order: communicators are made collectively.
    return {group: dist.new_group(list(group), timeout=timeout) for group in plan.groups()}


@attrs.frozen(eq=False)
class _Work:
    config: Config
    rank_in_group: int
    source: Tensor
    target: Tensor
    pattern: Tensor
    group: ProcessGroup


def _prepare(
    rank: int,
    config: Config,
    backend: CommBackend,
    groups: Mapping[tuple[int, ...], ProcessGroup],
    device: str,
    previous: _Work | None,
) -> tuple[_Work | None, str]:
    """Build the buffers of *config*; the second value says why it cannot be, for all ranks to skip it."""
    import torch

    group = config.group_of(rank)
    assert group is not None
    element = torch.tensor([], dtype=getattr(torch, config.dtype)).element_size()
    try:
        source = backend.allocate(
            config, "input", config.size.rank_input_bytes // element, config.dtype, device
        )
        in_place = config.op in ("all_reduce", "broadcast")
        target = (
            source
            if in_place
            else backend.allocate(
                config, "output", config.size.rank_output_bytes // element, config.dtype, device
            )
        )
        pattern = input_pattern(config, group.index(rank), source)
    except (MemoryError, torch.OutOfMemoryError) as error:
        return None, f"out of memory: {error}"
    source.copy_(pattern)
    return _Work(config, group.index(rank), source, target, pattern, groups[group]), ""


def _run(
    work: _Work,
    message: Mapping[str, object],
    settings: RankSettings,
    backend: CommBackend,
    progress: _Progress,
) -> dict[str, object]:
    calls = int(str(message["calls"]))
    call = backend.bind(work.config, work.source, work.target, work.group)

    def refill() -> None:
        work.source.copy_(work.pattern)

    def enter() -> None:
        progress.entered += 1

    progress.in_collective = True
    warming = message["do"] == "warm"
    timer = "event" if warming and settings.timer == "kernel" else settings.timer
    begin_ns = 0
    deferred = timer == "kernel" and not backend.kernel_pattern(work.config)
    if deferred:
        # The profiler around this process knows the durations; this one knows when the calls were made.
        backend.synchronize()
        begin_ns = time.time_ns()
        timer = "event"
    samples = time_calls(
        timer,
        call,
        calls,
        refill,
        refill_interval(work.config),
        enter,
        backend.synchronize,
        backend.kernel_pattern(work.config),
    )
    window = [begin_ns, time.time_ns(), backend.device_number(settings.local_rank)] if deferred else []
    if warming:
        progress.in_collective = False
        return {"kind": "warm", "per_call_us": sum(samples) / len(samples)}
    wrong = 0
    if message.get("check"):
        work.source.copy_(work.pattern)
        work.target.zero_() if work.target is not work.source else None
        call()
        backend.synchronize()
        expected = expected_output(work.config, work.rank_in_group, work.target)
        wrong = int((work.target != expected).sum())
    progress.in_collective = False
    if deferred:
        return {"kind": "result", "samples_us": [], "wrong": wrong, "window": window}
    return {"kind": "result", "samples_us": samples, "wrong": wrong}
