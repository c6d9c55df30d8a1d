"""An operator of two ranks for tests: each adds on its own NPU, and all meet before every case."""

from __future__ import annotations

from collections.abc import Callable

from perfcollect_core import Case, Device, Inputs, Kernel, OperatorSpec, Slot

__all__ = ["perfcollect_bind_kernel", "perfcollect_operator_spec"]


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    return OperatorSpec(
        name=operator,
        families=("ascend",),
        inputs=(Slot("x"), Slot("y")),
        outputs=(Slot("z"),),
        aliases=("Add",),
        ranks=2,
    )


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,npu:hccl")
    dist.barrier(group=_gloo())
    x, y = inputs["x"], inputs["y"]
    call: Callable[[], object] = lambda: torch.add(x, y)  # noqa: E731  (the bound call)
    return Kernel(call=call)


def _gloo() -> object:
    import torch.distributed as dist

    global _group
    if _group is None:
        _group = dist.new_group(backend="gloo")
    return _group


_group: object = None
