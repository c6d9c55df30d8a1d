"""Compare perfcollect's loop around a collective with a bare torch.distributed loop, interleaved, two gloo ranks.

``python benchmarks/comm_loop.py`` prints, per collective and size, the median over 15 rounds of the ratio of the two loops' medians;
the target is at most 1.05 at 64 KiB and above.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time

ROUNDS, CALLS = 15, 40
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 22)
OPS = ("all_reduce", "all_gather", "all_to_all")


def rank_main(rank: int, port: int, results: multiprocessing.Queue) -> None:
    """Time both loops in turn on one rank; rank 0 reports the slowest rank's medians."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    from perfcollect_comm.calls import bind_call, zeros
    from perfcollect_comm.pattern import input_pattern, refill_interval
    from perfcollect_comm.plan import CommRequest, make_plan
    from perfcollect_comm.timers import time_calls
    from perfcollect_comm.topology import Grid

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    plan = make_plan(CommRequest(2, ops=OPS, num_devices=(2,), grid=Grid((2,)), bytes_grid=SIZES))
    group = dist.new_group([0, 1])
    for config in plan.configs:
        source = zeros(config.size.rank_input_bytes // 2, "bfloat16", "cpu")
        target = (
            source
            if config.op == "all_reduce"
            else zeros(config.size.rank_output_bytes // 2, "bfloat16", "cpu")
        )
        pattern = input_pattern(config, rank, source)
        call = bind_call(config, source, target, group)

        def ours_once(call=call, source=source, pattern=pattern, config=config) -> float:
            interval = refill_interval(config)
            samples = time_calls(
                "host", call, CALLS, lambda: source.copy_(pattern), interval, lambda: None, lambda: None
            )
            return statistics.median(samples)

        def bare_once(call=call) -> float:
            samples = []
            for _ in range(CALLS):
                begin = time.perf_counter()
                call()
                samples.append((time.perf_counter() - begin) * 1e6)
            return statistics.median(samples)

        source.zero_()
        bare_once()
        bare, ours = [], []
        for index in range(ROUNDS):
            # The order alternates, so that neither loop always runs on what the other left in the caches.
            for name in ("bare", "ours") if index % 2 else ("ours", "bare"):
                dist.barrier()
                if name == "bare":
                    source.zero_()
                    bare.append(bare_once())
                else:
                    ours.append(ours_once())
        results.put((rank, config.op, config.size.message_bytes, bare, ours))
    dist.barrier()


def main() -> int:
    """Run the two ranks and print the table; exit 1 where a ratio is above the target."""
    from perfcollect_comm.network import free_port

    context = multiprocessing.get_context("spawn")
    results, port = context.Queue(), free_port()
    ranks = [context.Process(target=rank_main, args=(rank, port, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    rows: dict[tuple[str, int], list[tuple[list[float], list[float]]]] = {}
    for _ in range(2 * len(OPS) * len(SIZES)):
        _, op, size, bare, ours = results.get(timeout=300)
        rows.setdefault((op, size), []).append((bare, ours))
    for process in ranks:
        process.join()
    worst = 0.0
    print(f"{'collective':<12} {'bytes':>8} {'bare us':>10} {'ours us':>10} {'ratio':>6}")
    for (op, size), pairs in rows.items():
        bare = list(map(max, zip(*(pair[0] for pair in pairs), strict=True)))
        ours = list(map(max, zip(*(pair[1] for pair in pairs), strict=True)))
        ratio = statistics.median(o / b for o, b in zip(ours, bare, strict=True))
        if size >= 1 << 16:
            worst = max(worst, ratio)
        print(
            f"{op:<12} {size:>8} {statistics.median(bare):>10.1f} {statistics.median(ours):>10.1f} {ratio:>6.3f}"
        )
    print(f"worst ratio at 64 KiB and above: {worst:.3f} (target 1.05)")
    return 0 if worst <= 1.05 else 1


if __name__ == "__main__":
    raise SystemExit(main())
