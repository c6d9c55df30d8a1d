"""The real torch_npu works on the emulated CANN: results that matter, time, faults, ranks."""

from __future__ import annotations

import pytest
from plugin import Emulator

pytestmark = pytest.mark.ascend_emulator

TRY = """
def attempt(what, call):
    try:
        print(what, "->", call())
    except RuntimeError as error:
        print(what, "->", type(error).__name__, str(error).replace("\\n", " | "))

a, b = torch.empty(4, 8, device="npu"), torch.empty(8, 4, device="npu")
torch.npu.synchronize()
def mm():
    torch.mm(a, b)
"""


def _lines(text: str) -> dict[str, str]:
    return dict(line.split(" -> ", 1) for line in text.splitlines() if " -> " in line)


def test_data_devices_and_event_times_are_real_or_repeat_exactly(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(devices=4, durations={"aclnnMm": 12.5})

    done = ascend_emulator.run_code(
        TRY
        + """
print("devices ->", torch.npu.device_count(), torch.npu.get_device_name())
x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
print("copies ->", x.npu().t().contiguous().bfloat16().cpu().tolist())
print("fills ->", torch.ones(2, device="npu").tolist(), torch.zeros(2, device="npu").tolist())
for count in (1, 10, 100):
    begin, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        mm()
    end.record()
    torch.npu.synchronize()
    print(f"{count} calls -> {begin.elapsed_time(end):.6f}")
torch.empty(4, device="npu:1") + 1
torch.npu.synchronize(1)
""",
        ASCEND_RT_VISIBLE_DEVICES="1,3",
    )

    assert done.returncode == 0, done.stderr
    assert _lines(done.stdout) == {
        "devices": "2 Ascend910_9382",
        "copies": "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]",
        "fills": "[1.0, 1.0] [0.0, 0.0]",
        "1 calls": "0.012500",
        "10 calls": "0.125000",
        "100 calls": "1.250000",
    }
    assert {(launch["name"], launch["device"]) for launch in ascend_emulator.kernels()} >= {
        ("aclnnMm", 1),
        ("aclnnAdds", 3),
    }


def test_synchronous_and_memory_errors_leave_the_process_healthy(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(hbm_mb=64, faults=["aclnnMm@1:ws=161002", "aclnnMm@2:ws=207001"])

    done = ascend_emulator.run_code(
        TRY
        + """
attempt("invalid", mm)
attempt("no workspace", mm)
attempt("too large", lambda: torch.empty(100 << 20, dtype=torch.int8, device="npu"))
attempt("healthy", mm)
attempt("synchronised", torch.npu.synchronize)
"""
    )

    lines = _lines(done.stdout)
    assert lines["invalid"].startswith("RuntimeError ")
    assert "call aclnnMm failed, error code is 161002" in lines["invalid"]
    assert lines["no workspace"].startswith("OutOfMemoryError ")
    assert lines["too large"].startswith(
        "OutOfMemoryError NPU out of memory. Tried to allocate 102.00 MiB (NPU 0; 64.00 MiB total"
    )
    assert (lines["healthy"], lines["synchronised"]) == ("None", "None")
    assert [launch["name"] for launch in ascend_emulator.kernels()] == ["aclnnMm"]


def test_after_a_queued_error_torch_npu_drops_launches_in_silence(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["aclnnMm:launch=507015"])

    done = ascend_emulator.run_code(
        TRY
        + """
def until_error():
    for _ in range(100):
        mm()
        torch.npu.synchronize()
attempt("error", until_error)
for number in range(5):
    attempt(f"later {number}", lambda: (a + a, torch.npu.synchronize()) and "ok")
"""
    )

    lines = _lines(done.stdout)
    assert lines["error"].startswith("RuntimeError The Inner error is reported as above.")
    assert "the current working operator name is aclnnMm" in lines["error"]
    assert "error code is 507015" in done.stderr
    assert [lines[f"later {number}"] for number in range(5)] == ["ok"] * 5
    assert ascend_emulator.kernels() == []


def test_a_lost_device_fails_every_synchronisation(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["aclnnMm:sync=507018"])

    done = ascend_emulator.run_code(
        TRY
        + """
mm()
attempt("first", torch.npu.synchronize)
attempt("second", torch.npu.synchronize)
attempt("copy", a.cpu)
"""
    )

    lines = _lines(done.stdout)
    assert all(lines[what].startswith("RuntimeError ") for what in ("first", "second", "copy"))
    assert "507018" in lines["second"]


def test_two_ranks_exchange_real_data(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(devices=2)
    script = ascend_emulator.directory / "ranks.py"
    script.write_text(
        """
import os, torch, torch_npu, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("cpu:gloo,npu:hccl")
def show(what, value):
    # One write: the ranks share this output, and print's line end may come after another rank's line.
    os.write(1, f"{rank} {what} -> {value}\\n".encode())
for dtype in (torch.float32, torch.bfloat16, torch.int32):
    total = torch.full((4,), rank + 1, dtype=dtype).npu()
    dist.all_reduce(total)
    show(f"sum {dtype}", total.tolist())
mine = torch.full((3,), rank).npu()
gathered = [torch.empty_like(mine) for _ in range(2)]
dist.all_gather(gathered, mine)
show("gathered", [one.tolist() for one in gathered])
sent = torch.arange(3, dtype=torch.float32).add(10 * rank).npu()
received = torch.empty(2 + 2 * rank).npu()
dist.all_to_all_single(received, sent, [1 + rank] * 2, [1, 2])
show("exchanged", received.tolist())
part = torch.empty(2).npu()
dist.reduce_scatter_tensor(part, torch.arange(4.0).npu())
show("scattered", part.tolist())
dist.broadcast(mine, 1)
show("broadcast", mine.tolist())
dist.barrier()
dist.destroy_process_group()
"""
    )

    done = ascend_emulator.run(
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--master_port=0",
        "--rdzv_backend=c10d",
        "--rdzv_endpoint=localhost:0",
        script,
    )

    lines = _lines(done.stdout)
    assert done.returncode == 0, done.stderr
    for rank in "01":
        assert lines[f"{rank} sum torch.float32"] == "[3.0, 3.0, 3.0, 3.0]"
        assert lines[f"{rank} sum torch.bfloat16"] == "[3.0, 3.0, 3.0, 3.0]"
        assert lines[f"{rank} sum torch.int32"] == "[3, 3, 3, 3]"
        assert lines[f"{rank} gathered"] == "[[0, 0, 0], [1, 1, 1]]"
        assert lines[f"{rank} broadcast"] == "[1, 1, 1]"
    assert (lines["0 exchanged"], lines["1 exchanged"]) == ("[0.0, 10.0]", "[1.0, 2.0, 11.0, 12.0]")
    assert (lines["0 scattered"], lines["1 scattered"]) == ("[0.0, 2.0]", "[4.0, 6.0]")
    collectives = {
        (launch["name"], launch["rank"], launch["device"]) for launch in ascend_emulator.launches("hccl")
    }
    assert {("HcclAllReduce", 0, 0), ("HcclAllReduce", 1, 1), ("HcclAlltoAllV", 1, 1)} <= collectives
