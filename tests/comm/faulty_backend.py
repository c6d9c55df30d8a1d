"""Gloo with one rank that misbehaves at one message size; ``PERFCOLLECT_TEST_FAULT`` is ``rank:bytes:action``."""

from __future__ import annotations

import os
import signal
import time

from perfcollect_comm.backends import gloo
from perfcollect_comm.calls import zeros

name = "faulty"
library = gloo.library
timers = gloo.timers
# The other half of the protocol is gloo's own.
profiled, read_profile, device_number = gloo.profiled, gloo.read_profile, gloo.device_number
kernel_pattern, environment, memory_bytes, missing = (
    gloo.kernel_pattern,
    gloo.environment,
    gloo.memory_bytes,
    gloo.missing,
)
rank_environment, synchronize, torch_device = gloo.rank_environment, gloo.synchronize, gloo.torch_device


def _fault(config):
    rank, size, action = os.environ["PERFCOLLECT_TEST_FAULT"].split(":")
    import torch.distributed as dist

    mine = dist.get_rank() == int(rank) and config.size.message_bytes == int(size)
    return action if mine else ""


def allocate(config, role, numel, dtype, device):
    action = _fault(config)
    if action == "raise":
        raise RuntimeError("cannot build its input")
    if action == "oom":
        raise MemoryError("no room")
    if action == "exit":
        os._exit(3)
    if action == "double_size":
        return zeros(2 * numel, dtype, device)
    return zeros(numel, dtype, device)


def bind(config, source, target, group):
    call, action = gloo.bind(config, source, target, group), _fault(config)
    if action == "sleep":
        return lambda: time.sleep(3600)
    if action == "stop":
        return lambda: os.kill(os.getpid(), signal.SIGSTOP)
    if action == "kill":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    if action == "wrong":
        return lambda: (call(), target.zero_())
    if action == "late":
        return lambda: (time.sleep(0.02), call())
    return call
