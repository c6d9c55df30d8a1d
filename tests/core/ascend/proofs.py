"""What tests prove of the Ascend path without an NPU, and what only hardware can prove: the lists docs/ascend*.md show.

``python tests/core/ascend/proofs.py`` writes them into the documents.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = "<!-- proofs: begin -->", "<!-- proofs: end -->"
DOCUMENTS = {"en": ROOT / "docs" / "ascend.md", "zh": ROOT / "docs" / "ascend.zh.md"}

_CORE = "tests/core/ascend"
_EMULATOR = "tests/ascend_emulator/test_perfcollect_bindings.py"

#: (English, Chinese, file, test)
PROVEN = (
    (
        "at least 33 of the 36 operators are launched through torch_npu and measured",
        "36 个算子中至少 33 个经 torch_npu 下发并完成测量",
        _EMULATOR,
        "test_at_least_33_operators_are_launched_and_measured",
    ),
    (
        "the tensors passed to CANN are those the row records",
        "传给 CANN 的张量与数据行的记录一致",
        _EMULATOR,
        "test_the_tensors_a_row_records_are_those_that_were_passed",
    ),
    (
        "durations are written back exactly as the profiler reports them",
        "写回的耗时与 profiler 给出的完全一致",
        _EMULATOR,
        "test_every_duration_written_is_the_one_that_was_fixed",
    ),
    (
        "four devices share the cases, one worker and one msprof each",
        "四张卡共享一个任务队列，每卡一个 worker、一个 msprof",
        _EMULATOR,
        "test_four_devices_share_the_cases",
    ),
    (
        "an operator that lacks its package stops the run before anything is measured",
        "算子缺少依赖包时，在测量之前就停止并说明原因",
        _EMULATOR,
        "test_an_operator_whose_package_is_missing_stops_the_run_in_words",
    ),
    (
        "emulated numbers are refused by a database that is not marked emulated",
        "未标记为 emulated 的数据库拒绝仿真数据",
        _EMULATOR,
        "test_a_database_not_marked_emulated_refuses_emulated_numbers",
    ),
    (
        "a fault ends one case; its neighbours are measured",
        "一个用例出错只影响自身，其余用例照常测量",
        _EMULATOR,
        "test_a_fault_is_the_fault_of_its_case_alone",
    ),
    (
        "of 10,000 profiler records none goes to a wrong case",
        "一万条 profiler 记录无一归错用例",
        f"{_CORE}/test_attribution.py",
        "test_no_task_of_ten_thousand_goes_to_a_wrong_case",
    ),
    (
        "a lost record is measured again, never guessed",
        "丢失的记录会重测，从不猜测",
        f"{_CORE}/test_sessions.py",
        "test_a_lost_record_is_measured_again",
    ),
    (
        "a crash costs no case that was launched before it",
        "进程崩溃不会丢失此前已下发的用例",
        f"{_CORE}/test_sessions.py",
        "test_a_crash_costs_no_case_that_was_launched_before",
    ),
    (
        "a session without data is repeated in smaller ones",
        "没有数据的会话会拆小后重做",
        f"{_CORE}/test_sessions.py",
        "test_a_session_without_data_is_repeated_in_smaller_ones",
    ),
    (
        "resets and flushes never fall into a number",
        "复位与刷缓存不会计入耗时",
        f"{_CORE}/test_measuring.py",
        "test_resets_run_outside_the_brackets",
    ),
)

#: (English, Chinese)
ONLY_HARDWARE = (
    (
        "that CANN accepts the calls, and which kernel it picks for them",
        "CANN 是否接受这些调用，以及实际选择的 kernel",
    ),
    ("any duration, counter or result", "任何耗时、计数器与计算结果"),
    (
        "how this msprof writes its files, and how far its clock is off the host's",
        "真实 msprof 的文件格式及其时钟与主机的偏差",
    ),
    ("how a lost device behaves, and the texts of its errors", "设备丢失时的真实表现与报错文本"),
    (
        "HCCL over real links: DispatchFFNCombine and the collectives",
        "真实链路上的 HCCL：DispatchFFNCombine 与集合通信",
    ),
    (
        "the operators that need vllm-ascend's kernels or triton-ascend",
        "依赖 vllm-ascend 自定义算子或 triton-ascend 的算子",
    ),
)

_WORDS = {
    "en": ("Proven without an NPU", "by the test", "Only hardware can prove"),
    "zh": ("无 NPU 即可证明", "对应测试", "只有真实硬件才能证明"),
}


def render(language: str) -> str:
    """Return the lists in *language*, the markers around them."""
    at = 0 if language == "en" else 1
    proven, by, hardware = _WORDS[language]
    lines = [BEGIN, "", f"| {proven} | {by} |", "|---|---|"]
    lines += [f"| {entry[at]} | `{entry[3]}` |" for entry in PROVEN]
    lines += ["", f"{hardware}{':' if language == 'en' else '：'}", ""]
    lines += [f"- {entry[at]}" for entry in ONLY_HARDWARE]
    return "\n".join([*lines, "", END])


def main() -> None:
    for language, path in DOCUMENTS.items():
        text = path.read_text(encoding="utf-8")
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        path.write_text(head + render(language) + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
