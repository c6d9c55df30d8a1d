"""A library that computes durations instead of taking them: latency and bandwidth by tier, a cliff, a late rank.

``PERFCOLLECT_TEST_SIM`` is JSON: ``alpha_us`` and ``beta_gbps`` by tier, ``jitter``, ``cliff_bytes`` and ``cliff_factor``,
``late_rank`` and ``late_us``. Buffers are on torch's meta device, so that any size costs nothing.
"""

from __future__ import annotations

import json
import os
import random

from perfcollect_comm.backends import gloo
from perfcollect_comm.calls import zeros
from perfcollect_comm.collectives import collective

name = "simulated"
library = gloo.library
timers = ("virtual",)
kernel_pattern, environment, missing = gloo.kernel_pattern, gloo.environment, gloo.missing
rank_environment, synchronize = gloo.rank_environment, gloo.synchronize
profiled, read_profile, device_number = gloo.profiled, gloo.read_profile, gloo.device_number


def memory_bytes(ranks_here):
    return 0


def torch_device(local_rank):
    return "meta"


def allocate(config, role, numel, dtype, device):
    return zeros(numel, dtype, device)


def bind(config, source, target, group):
    import torch.distributed as dist

    model = json.loads(os.environ["PERFCOLLECT_TEST_SIM"])
    rank = dist.get_rank()
    # The seed names call and rank: every run of a plan draws the same numbers.
    draw = random.Random(f"{config.key} {rank}")
    volume = config.size.nccl_bytes * collective(config.op).bus_factor(config.n)
    transfer = model["alpha_us"][config.tier] + volume / (model["beta_gbps"][config.tier] * 1e3)
    if config.size.message_bytes >= model.get("cliff_bytes", float("inf")):
        transfer *= model["cliff_factor"]
    waits = rank != model.get("late_rank", rank) and model.get("late_rank") in config.members

    def call() -> float:
        noise = 1 + model.get("jitter", 0.0) * draw.uniform(-1, 1)
        return transfer * noise + (model["late_us"] if waits else 0.0)

    return call
