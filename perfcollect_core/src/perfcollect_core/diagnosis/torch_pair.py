"""Check that torch and torch_npu belong together, from their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from packaging.version import InvalidVersion, Version

from .findings import Finding, Scope

__all__ = ["torch_pair"]

_CHECK = "torch"


def torch_pair(scope: Scope) -> Iterator[Finding]:
    """Compare the versions of torch and torch_npu; neither is imported."""
    torch, npu = _version("torch"), _version("torch_npu")
    if torch is None:
        level = "warning" if npu is None and scope.family is None else "error"
        yield Finding(
            _CHECK,
            "error" if level == "error" else "warning",
            "torch",
            "is not installed in this environment",
            "install the torch of your device family (README, section Installing)",
        )
        return
    if npu is None:
        if scope.family == "ascend":
            yield Finding(
                _CHECK,
                "error",
                "torch_npu",
                f"is not installed beside torch {torch}",
                f"install the torch_npu of torch {torch.base_version}",
            )
        else:
            yield Finding(_CHECK, "ok", "torch", f"{torch}, no torch_npu")
        return
    # torch_npu X.Y.Z and its post releases are built against exactly torch X.Y.Z.
    if torch.release != npu.release:
        yield Finding(
            _CHECK,
            "error",
            "torch and torch_npu",
            f"torch {torch} and torch_npu {npu} are no pair",
            f"install torch {npu.base_version}, or the torch_npu of torch {torch.base_version}",
        )
    else:
        yield Finding(_CHECK, "ok", "torch and torch_npu", f"torch {torch}, torch_npu {npu}")


def _version(distribution: str) -> Version | None:
    try:
        return Version(metadata.version(distribution))
    except (metadata.PackageNotFoundError, InvalidVersion, TypeError):
        return None
