"""The ``hcom_*`` operators: a row of a collective's table measured by ``perfcollect run`` when it is named.

``comm run`` measures a whole grid; this measures the sizes a table holds, on the block group of ranks 0 to n - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Measurement,
    OperatorSpec,
    Reference,
    Row,
    Signature,
    Skip,
    Slot,
    TensorSpec,
    Tolerance,
    case_seed,
)

from .collectives import collective, comm_dtype, message_size
from .plan import Config
from .tables import CommRow
from .topology import Grid

if TYPE_CHECKING:
    from torch import Tensor

_LIBRARIES = {"cpu": "gloo", "cuda": "nccl", "ascend": "hccl"}
_WORDS = {"DT_BF16": "BF16", "DT_FP16": "FLOAT16", "DT_FLOAT": "FLOAT", "DT_INT8": "INT8"}
_API = {
    "all_reduce": "torch.distributed.all_reduce",
    "all_gather": "torch.distributed.all_gather_into_tensor",
    "reduce_scatter": "torch.distributed.reduce_scatter_tensor",
    "all_to_all": "torch.distributed.all_to_all",
    "all_to_all_single": "torch.distributed.all_to_all_single",
    "broadcast": "torch.distributed.broadcast",
}


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    op = collective(operator)
    example = {
        "message_bytes": "65536",
        "num_devices": "2",
        "dtype": "DT_BF16",
        "topology_tier": "2",
        "Duration(us)": "",
    }
    return OperatorSpec(
        name=operator,
        summary=f"{op.name} over one group of ranks",
        api=dict.fromkeys(_LIBRARIES, _API[op.name]),
        inputs=(Slot("source", "what one rank sends"),),
        outputs=(Slot("target", "what one rank receives"),),
        required_columns=("message_bytes", "num_devices"),
        key_columns=("message_bytes", "num_devices", "topology_tier"),
        ranks=None,
        match_only=True,
        value_policy="small integers in a closed form, exact in every message dtype, so that each result can be verified",
        assumptions=(
            "dtype=DT_BF16 where the row has none",
            "the group is ranks 0 to n - 1 of a 48 8 2 grid",
        ),
        examples=tuple({**example, "message_bytes": str(size)} for size in (1024, 65536, 1048576)),
        negative=(
            {**example, "num_devices": "1"},
            {**example, "message_bytes": "0"},
            {**example, "dtype": "DT_FP8"},
        ),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    op = collective(spec.name)
    words = {name: row.get(name) for name in ("message_bytes", "num_devices", "topology_tier")}
    for name, word in words.items():
        if not (word.isascii() and word.isdecimal()) and (word or name != "topology_tier"):
            return Skip.invalid(f"column {name!r} holds {word!r}, expected a number")
    n, asked = int(words["num_devices"]), int(words["message_bytes"])
    table_dtype = row.get("dtype") or "DT_BF16"
    if table_dtype not in _WORDS:
        return Skip.invalid(f"column 'dtype' holds {table_dtype!r}, expected one of {', '.join(_WORDS)}")
    if n < 2 or asked < 1:
        return Skip.invalid(f"{n} ranks and {asked} B, expected at least 2 ranks and 1 B")
    element = comm_dtype(table_dtype).nbytes
    size = message_size(op, n, element, asked)
    if size.rounded:
        return Skip.invalid(
            f"{asked} B cannot be moved among {n} ranks in {table_dtype}, the next size is {size.message_bytes} B"
        )
    grid = Grid()
    tier = int(words["topology_tier"] or grid.tier(range(n)))
    if tier != grid.tier(range(n)):
        return Skip(
            f"tier {tier} is not that of ranks 0 to {n - 1} (tier {grid.tier(range(n))}); perfcollect comm run measures it"
        )
    word = _WORDS[table_dtype]
    source = TensorSpec((size.rank_input_bytes // element,), word, "ND")
    target = TensorSpec((size.rank_output_bytes // element,), word, "ND")
    return Case(
        operator=spec.name,
        row=row.ref,
        signature=Signature((source,), (target,)),
        tensors={"source": source, "target": target},
        params={"op": op.name, "dtype": comm_dtype(table_dtype).name, "message_bytes": asked, "tier": tier},
        assumptions=() if row.get("dtype") else ("dtype=DT_BF16 (the row has none)",),
        ranks=n,
        seed=case_seed(spec.name, row.ref.key),
    )


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...]:
    return (spec.name, *(row.get(column) for column in (*spec.key_columns, "dtype")))


def perfcollect_estimate_cost(case: Case) -> Cost:
    return Cost(0.0, float(sum(tensor.nbytes for tensor in case.tensors.values())))


def _config(case: Case) -> Config:
    op = collective(case.operator)
    dtype = comm_dtype(str(case.params["dtype"]))
    size = message_size(op, case.ranks, dtype.nbytes, cast("int", case.params["message_bytes"]))
    group = tuple(range(case.ranks))
    return Config(
        0, op.name, dtype.name, case.ranks, cast("int", case.params["tier"]), "block", (group,), size
    )


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    from .calls import zeros
    from .pattern import input_pattern

    config = _config(case)
    source = zeros(case.tensors["source"].numel, config.dtype, device.torch_device)
    pattern = input_pattern(config, device.rank, source)
    source.copy_(pattern)
    in_place = config.op in ("all_reduce", "broadcast")
    target = source if in_place else zeros(case.tensors["target"].numel, config.dtype, device.torch_device)
    return Inputs({"source": source, "target": target, "pattern": pattern})


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch.distributed as dist

    from .calls import bind_call

    if not dist.is_initialized():
        dist.init_process_group(_LIBRARIES[device.family])
    world = dist.group.WORLD
    assert world is not None
    call = bind_call(_config(case), inputs["source"], inputs["target"], world)

    def outputs(result: object) -> tuple[Tensor]:
        return (inputs["target"],)

    return Kernel(call=call, outputs=outputs, reset=lambda: inputs["source"].copy_(inputs["pattern"]))


def perfcollect_reference(case: Case, inputs: Inputs, device: Device) -> Reference:
    from .pattern import expected_output

    return Reference((expected_output(_config(case), device.rank, inputs["target"]),), (Tolerance(0.0, 0.0),))


def perfcollect_write_back(
    case: Case, measurement: Measurement, rows: Sequence[Row]
) -> Sequence[Mapping[str, str]]:
    library = {"CPU": "gloo", "GPU": "nccl"}.get(measurement.core, "")
    dtype = comm_dtype(str(case.params["dtype"]))
    row = CommRow(
        cast("int", case.params["message_bytes"]),
        case.ranks,
        dtype.table,
        cast("int", case.params["tier"]),
        measurement.value_us,
        library,
    )
    written = {name: row.cells()[name] for name in ("Duration(us)", "bandwidth_gbps")}
    return [{**written, "Backend": library} if library else written for _ in rows]
