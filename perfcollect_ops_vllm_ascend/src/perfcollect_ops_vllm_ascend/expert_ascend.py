"""The fused expert-parallel kernel of vllm-ascend (worker)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from perfcollect_core import Case, Device, Inputs, Kernel
from perfcollect_core.errors import CaseError, MissingEnvironmentError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_ascend", "window_megabytes"]

_MIB = 1 << 20
_NZ = 29


def window_megabytes(case: Case) -> float:
    """Return the HCCL window one rank needs, MiB: three copies of the rows dispatched and 10 MiB of its own."""
    tokens, topk = case.tensors["expert_idx"].shape or (0, 0)
    return 3 * tokens * topk * (case.tensors["x"].shape or (0, 0))[1] / _MIB + 10


def bind_ascend(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind ``dispatch_ffn_combine`` in the variant that is registered here, found out by its schema.

    Raises:
        MissingEnvironmentError: The HCCL window is too small; it is sized when the process starts.
        CaseError: The registered variant takes arguments that are not known here.
    """
    import torch
    import torch.distributed as dist
    import torch_npu
    from vllm_ascend.utils import enable_custom_op  # type: ignore[import-not-found]

    _check_window(case)
    enable_custom_op()
    operator = torch.ops._C_ascend.dispatch_ffn_combine
    backend = dist.group.WORLD._get_backend(torch.device("npu"))
    # The kernel reads FRACTAL_NZ weights whatever the row records.
    weights = {name: torch_npu.npu_format_cast(inputs[name], _NZ) for name in ("weight1", "weight2")}
    empty = torch.empty(0, dtype=torch.int64, device=device.torch_device)
    scales = {name: inputs.tensors.get(name, empty) for name in ("scale1", "scale2")}
    out = torch.empty_like(inputs["x"])
    counts = torch.empty(len(inputs["weight1"]), dtype=torch.int32, device=device.torch_device)
    nothing = torch.empty(0, dtype=torch.float32, device=device.torch_device)
    arguments: dict[str, object] = {
        "x": inputs["x"],
        **{name: [tensor] for name, tensor in (weights | scales).items()},
        "expert_idx": inputs["expert_idx"],
        "bias1": [nothing],
        "bias2": [nothing],
        "probs": inputs["probs"],
        "group": backend.get_hccl_comm_name(device.rank),
        "max_output_size": case.params["max_output_size"],
        "out": out,
        "expert_token_nums": counts,
        "x_active_mask": inputs.tensors.get("x_active_mask"),
    }
    schema = operator.default._schema.arguments
    known = {argument.name for argument in schema}
    unknown = [a.name for a in schema if a.name not in arguments and not a.has_default_value()]
    if unknown:
        raise CaseError(
            f"dispatch_ffn_combine here takes {', '.join(a.name for a in schema)}: {', '.join(unknown)} is not known",
            hint="this vllm-ascend is newer than perfcollect knows",
            case=case,
        )
    keywords = {name: value for name, value in arguments.items() if name in known}

    def outputs(_: object) -> tuple[Tensor | None, ...]:
        return out, counts if "expert_token_nums" in known else None

    return Kernel(lambda: operator(**keywords), outputs)


def _check_window(case: Case) -> None:
    text = os.environ.get("HCCL_BUFFSIZE", "")
    size = int(text) if text.isdigit() and int(text) <= 65535 else 200
    needed = window_megabytes(case)
    if needed > size:
        raise MissingEnvironmentError(
            f"DispatchFFNCombine needs an HCCL window of {needed:.0f} MiB, HCCL_BUFFSIZE gives {size}",
            hint=f"export HCCL_BUFFSIZE={needed:.0f}, then start again",
            variables=("HCCL_BUFFSIZE",),
        )
