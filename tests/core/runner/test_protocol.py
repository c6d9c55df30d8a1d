"""What travels between a run and its workers arrives as it was sent."""

from __future__ import annotations

import json
import threading

import pytest

from perfcollect_core.cases import Case, RowRef
from perfcollect_core.measurements import Plan, Samples
from perfcollect_core.runner.channel import Channel, ChannelClosed, connect, listen
from perfcollect_core.runner.protocol import (
    PluginRef,
    Setup,
    decode_case,
    decode_plan,
    decode_samples,
    decode_setup,
    encode_case,
    encode_plan,
    encode_samples,
    encode_setup,
)
from perfcollect_core.tensors import TensorSpec, parse_signature

CELLS = {
    "Input Shapes": '"136,7168;;7168,3584"',
    "Input Data Types": "DT_BF16;DT_UNDEFINED;DT_BF16",
    "Input Formats": "ND;NULL;FRACTAL_NZ",
    "Output Shapes": '"136,3584"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
}


def through_json(value):
    return json.loads(json.dumps(value))


def test_a_case_survives_the_way_to_the_worker():
    case = Case(
        operator="MatMulV2",
        row=RowRef("MatMulV2.csv", ("MatMulV2", "136,7168"), 2),
        signature=parse_signature(CELLS),
        tensors={"x1": TensorSpec((136, 7168), "BF16", "ND"), "scale": TensorSpec(None, "FLOAT")},
        params={"transpose_b": True, "lengths": (1, 2, (3,)), "eps": 1e-6, "layout": None},
        assumptions=("bias=absent (not recorded)",),
        ranks=2,
        seed=123456789012,
    )

    back = decode_case(through_json(encode_case(case)))

    assert back == case
    assert back.signature.inputs[2].format_text == "FRACTAL_NZ"


def test_a_case_without_a_row_survives_too():
    case = Case("hcom_allReduce_", None, parse_signature({}))

    assert decode_case(through_json(encode_case(case))) == case


@pytest.mark.parametrize(
    "samples",
    [
        Samples((20.1, 20.2), stop="precision"),
        Samples(
            (20.1,),
            inner=200,
            warmup_us=(97.0,),
            counters={"Power(W)": (310.2, 311.0), "Clock(MHz)": 1500.0},
            cache="cold requested, not achieved",
            flags=("clock below 95 % of nominal",),
            launches=200,
        ),
        Samples(window_ns=(1_796_150_000_000_000_000, 1_796_150_000_100_000_000), launches=30),
    ],
)
def test_samples_survive_the_way_back(samples):
    assert decode_samples(through_json(encode_samples(samples))) == samples


def test_durations_keep_a_tenth_of_a_nanosecond():
    assert decode_samples(encode_samples(Samples((0.123456789,)))).durations_us == (0.1235,)


def test_a_plan_and_a_setup_survive():
    plan = Plan(repeat=None, warmup=5, precision=0.02, max_seconds=0.5, cache="cold", passes=3)
    setup = Setup(
        PluginRef("cpu", "perfcollect_core.families.cpu", "perfcollect-core 0.1.0"),
        device=1,
        ranks=2,
        operators={"Add": PluginRef("Add", "ops:add", "ops 1.0")},
        wrappers=(PluginRef("energy", "w:e", "w 1.0"),),
        path=("/a", "/b"),
        memory_bytes=1 << 30,
        run_dir="/runs/1",
    )

    assert decode_plan(through_json(encode_plan(plan))) == plan
    assert decode_setup(through_json(encode_setup(setup))) == setup


@pytest.mark.parametrize("depth", [1, 12])
def test_a_socket_works_however_deep_its_directory_lies(tmp_path, depth):
    directory = tmp_path.joinpath(*["a-directory-with-a-long-name"] * depth)
    directory.mkdir(parents=True)
    server, path = listen(directory)
    assert path.parent == directory

    with server:
        client = connect(path)
        connection, _ = server.accept()
    ours = Channel(connection)
    threading.Thread(target=client.send, args=({"kind": "hello", "text": "ü\n" * 50_000},)).start()

    assert ours.receive()["text"] == "ü\n" * 50_000
    client.close()
    with pytest.raises(ChannelClosed):
        ours.receive()
    ours.close()


def test_what_was_sent_before_the_end_is_not_lost(tmp_path):
    server, path = listen(tmp_path)
    with server:
        client = connect(path)
        connection, _ = server.accept()
    for number in range(3):
        client.send({"kind": "result", "id": number})
    client.close()
    ours = Channel(connection)

    assert [message["id"] for message in ours.drain_rest()] == [0, 1, 2]
    ours.close()
