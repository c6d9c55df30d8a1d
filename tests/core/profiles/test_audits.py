"""``db check``: numbers that cannot be, or cannot both be."""

from __future__ import annotations

import pytest

from perfcollect_core.cases import Case, Cost
from perfcollect_core.profiles.roofline import Peaks, peaks_of
from perfcollect_core.tables.identity import Identity
from perfcollect_core.tensors import parse_signature

BASE = "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"


def row(m, *cells, core="AI_CORE", spelled='"{m},512;512,512"'):
    shapes = spelled.format(m=m)
    return ",".join([f'dynamic,{core},{shapes},DT_BF16;DT_BF16,ND;ND,"{m},512",DT_BF16,ND', *cells])


@pytest.fixture
def check(perfcollect, tmp_path):
    """Run ``db check`` on one table and give its exit code and findings as (kind, line, message)."""

    def run(header, *rows, name="Kernel.csv"):
        path = tmp_path / "ATLAS_800_A2_376T_64G" / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        before = path.read_bytes()

        done = perfcollect("db", "check", path.parent, "--format", "json")

        assert path.read_bytes() == before
        return done.code, [(found["kind"], found["line"], found["message"]) for found in done.json]

    return run


def test_a_sound_table_has_no_finding(check):
    header = f"{BASE},Average Duration(us),Profiling Average Duration(us),Profiling Std Duration(us)"

    assert check(header, row(64, "9.5", "", "0.000000"), row(32, "0", "7.0", "")) == (0, [])


def test_two_spellings_of_one_call_that_disagree_are_a_conflict(check):
    code, findings = check(
        f"{BASE},Average Duration(us)",
        row(64, "9.5"),
        row(32, "1.0"),
        row(64, "12.0", spelled='"{m}, 512;512, 512;"'),
    )

    assert code == 1
    assert (
        "conflict",
        2,
        "one call in 2 spellings, and 'Average Duration(us)' disagrees: line 2 9.5, line 4 12.0",
    ) in findings


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-0.37", "it is negative"),
        ("nan", "it is not finite"),
        ("inf", "it is not finite"),
        ("1_0", "it is not a number"),
        ("soon", "it is not a number"),
        ("18446744073709551.615", "it is a negative time wrapped around 2^64 ns"),
        ("1e12", "it is longer than a day"),
    ],
)
def test_impossible_durations_are_found_with_their_line(check, text, why):
    code, findings = check(f"{BASE},Average Duration(us)", row(64, "9.5"), row(32, text))

    assert (code, findings) == (1, [("duration", 3, f"'Average Duration(us)' is '{text}': {why}")])


def test_rows_of_another_family_contaminate_a_table(check):
    code, findings = check(
        f"{BASE},Average Duration(us)", row(64, "9.5"), row(32, "300.0", core="CPU"), row(16, "", core="CPU")
    )

    assert code == 1
    assert (
        "contaminated",
        3,
        "1 measured row with Accelerator Core 'CPU', which is of family cpu, the others are ascend: lines 3",
    ) in findings


def test_head_counts_that_ignore_tensor_parallelism_are_found(check):
    rows = [row(16, us, "128", str(tp)) for tp, us in ((1, "301.0"), (2, "152.0"), (4, "80.1"), (8, "44.0"))]

    code, findings = check(f"{BASE},Average Duration(us),num_heads,tp_size", *rows)

    assert code == 1
    assert (
        "head-counts",
        2,
        "num_heads stays 128 while tp_size goes 1..8, so these look like per-model counts; look-ups for 8 would "
        "return the time of 1: lines 2, 3, 4, 5",
    ) in findings


def test_head_counts_per_rank_are_fine(check):
    rows = [row(16 * heads, "9.5", str(heads), str(tp)) for tp, heads in ((1, 128), (2, 64), (4, 32))]

    assert check(f"{BASE},Average Duration(us),num_heads,tp_size", *rows) == (0, [])


def test_a_matmul_faster_than_the_device_is_found(check):
    pytest.importorskip("perfcollect_ops_builtin")
    square = '"{m},8192;4096,8192"'
    rows = [
        f'dynamic,AI_CORE,{square.format(m=m)},DT_BF16;DT_BF16,ND;ND,"{m},4096",DT_BF16,ND,{us}'
        for m, us in ((8192, "3500.0"), (8000, "12.5"))
    ]

    code, findings = check(f"{BASE},Average Duration(us)", *rows, name="MatMulV2.csv")

    assert code == 1
    ((kind, line, message),) = findings
    assert (kind, line) == ("roofline", 3)
    assert message.startswith("'Average Duration(us)' is 12.5 us, below the 14")


def case(dtype):
    signature = parse_signature(
        {
            "Input Shapes": "4096,4096;4096,4096",
            "Input Data Types": f"{dtype};{dtype}",
            "Input Formats": "ND;ND",
        }
    )
    return Case("MatMulV2", None, signature, dict(zip("xy", signature.inputs, strict=True)))


@pytest.mark.parametrize(
    ("dtype", "floor_us"), [("DT_BF16", 1000.0), ("FLOAT", 1000.0), ("INT8", 500.0), ("INT4", 250.0)]
)
def test_narrow_types_may_be_faster(dtype, floor_us):
    assert Peaks(1e14, 1e12).floor_us(Cost(1e11, 0.0), case(dtype)) == floor_us


def test_what_fits_into_the_caches_has_no_bound_by_memory():
    assert Peaks(1e14, 1e12).floor_us(Cost(0.0, 2.0**27), case("DT_BF16")) == 0.0


@pytest.mark.parametrize(
    ("identity", "flops"),
    [
        (Identity("ascend", "ATLAS_800_A2_313T_64G"), 313e12),
        (Identity("ascend", "ATLAS_800_A3_752T_128G_DIE"), 752e12),
        (Identity("ascend"), 752e12),
    ],
)
def test_the_peak_of_a_device_is_in_its_name(identity, flops):
    assert peaks_of(identity).flops == flops


@pytest.mark.parametrize("identity", [None, Identity("cpu", "CPU_X86_64"), Identity("ascend", emulated=True)])
def test_no_peak_is_made_up(identity):
    assert peaks_of(identity) is None
