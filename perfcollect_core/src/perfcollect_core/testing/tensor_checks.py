"""What the conformance checks ask of tensors (imports torch when called)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfcollect_core.tensors import TensorSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_output", "record_calls", "same_bytes", "spoil"]


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Tell whether two tensors have one shape, dtype and content; NaN equals itself here."""
    import torch

    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    flat = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in (left, right)]
    return bool(torch.equal(*flat))


def check_output(slot: int, spec: TensorSpec, got: Tensor) -> None:
    """Assert that output *slot* has the shape and dtype the row records."""
    from perfcollect_core.values import TORCH_DTYPES, torch_dtype

    shape = spec.shape or ()
    assert tuple(got.shape) == shape, f"output {slot} has shape {tuple(got.shape)}, the row records {shape}"
    if spec.dtype in TORCH_DTYPES:
        assert got.dtype == torch_dtype(spec.dtype), (
            f"output {slot} is {got.dtype}, the row records {spec.dtype}"
        )


def spoil(tensor: Tensor) -> Tensor:
    """Return a tensor that no sound tolerance takes for *tensor*."""
    import torch

    if tensor.dtype is torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor + 1 + tensor.abs()
    return tensor + 1


def record_calls(call: Callable[[], object]) -> set[str]:
    """Return the torch operators *call* runs, each with the dtypes of its tensors; views and copies left out."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()
    quiet = (
        "aten.view",
        "aten._unsafe_view",
        "aten.reshape",
        "aten._to_copy",
        "aten.detach",
        "aten.empty",
        "aten.t.",
    )

    class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not str(func).startswith(quiet):
                dtypes = [str(a.dtype) for a in args if isinstance(a, torch.Tensor)]
                seen.add(f"{func}({', '.join(dtypes)})")
            return func(*args, **(kwargs or {}))

    with Recorder():
        call()
    return seen
