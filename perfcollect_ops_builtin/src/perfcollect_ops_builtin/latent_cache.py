"""Norm, rotation and scatter of MLA's latent key on stock torch, and an independent answer (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Inputs, Kernel, Reference, Tolerance
from perfcollect_core.checking import difference, scatter_difference

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch", "latent_reference"]

#: Cache -> (where its values stand in kv, names of its scale and offset).
_CACHES = {
    "k_cache": (512, 576, "k_rope_scale", "k_rope_offset"),
    "ckv_cache": (0, 512, "c_kv_scale", "c_kv_offset"),
}


def _cache_rows(cache: Tensor, mode: str) -> Tensor:
    """View a cache so that ``view[first, second]`` is the row of one token, in two indices by mode.

    Paged: [block, slot]; Norm: [sequence, position]; NZ pages store a token's channels in groups of C0.
    """
    if mode == "Norm":
        return cache[:, 0]
    if mode == "PA_NZ":
        blocks, size, _, width = cache.shape
        group = 32 if cache.element_size() == 1 else 16
        return cache.view(blocks, width // group, size, group).transpose(1, 2)
    return cache[:, :, 0]


def bind_torch(case: Case, inputs: Inputs) -> Kernel:
    """Bind the unfused sequence in fp32, with one rounding where the fused kernel has one."""
    import torch

    mode, epsilon = cast("str", case.params["cache_mode"]), cast("float", case.params["epsilon"])
    kv, gamma, cos, sin, index = (inputs[name] for name in ("kv", "gamma", "cos", "sin", "index"))
    views = {name: _cache_rows(inputs[name], mode) for name in _CACHES}
    if mode == "Norm":
        where = (
            torch.arange(len(index), device=index.device)[:, None].expand_as(index).flatten(),
            index.flatten(),
        )
    else:
        size = inputs["k_cache"].shape[1]
        where = (index.flatten() // size, index.flatten() % size)
    filled = case.params["is_output_kv"]

    def run() -> tuple[Tensor, ...]:
        latent, key = kv[..., :512].float(), kv[..., 512:].float()
        normed = latent * torch.rsqrt(latent.square().mean(-1, keepdim=True) + epsilon) * gamma.float()
        even, odd = key[..., ::2], key[..., 1::2]
        rotated = torch.cat((even, odd), -1) * cos.float() + torch.cat((-odd, even), -1) * sin.float()
        for name, rows in (("k_cache", rotated), ("ckv_cache", normed)):
            view = views[name]
            if view.dtype == torch.int8:
                rows = _quantise(rows, inputs, name)
            view.index_put_(where, rows.reshape(-1, *view.shape[2:]).to(view.dtype))
        return rotated.to(kv.dtype), normed.to(kv.dtype)

    def outputs(result: object) -> tuple[Tensor | None, ...]:
        rope, latent = cast("tuple[Tensor, Tensor]", result)
        return inputs["k_cache"], inputs["ckv_cache"], rope if filled else None, latent if filled else None

    return Kernel(run, outputs)


def _quantise(rows: Tensor, inputs: Inputs, cache: str) -> Tensor:
    _, _, scale, offset = _CACHES[cache]
    rows = rows * inputs[scale].float()
    if offset in inputs.tensors:
        rows = rows + inputs[offset].float()
    return rows.round().clamp(-128, 127)


def latent_reference(case: Case, inputs: Inputs) -> Reference:
    """Compute in fp64 with complex rotation; compares the slots written and that nothing else changed."""
    import torch

    mode = cast("str", case.params["cache_mode"])
    kv = inputs["kv"].double().cpu().flatten(0, 2)
    cos, sin = (inputs[name].double().cpu().flatten(0, 2)[:, :32] for name in ("cos", "sin"))
    pairs = torch.view_as_complex(kv[:, 512:].unflatten(-1, (32, 2)).contiguous()) * torch.complex(cos, sin)
    latent = kv[:, :512]
    root = (latent.pow(2).sum(-1, keepdim=True) / 512 + cast("float", case.params["epsilon"])).sqrt()
    rows = {
        "k_cache": torch.cat((pairs.real, pairs.imag), -1),
        "ckv_cache": latent / root * inputs["gamma"].double().cpu(),
    }
    dtype = case.tensors["kv"].dtype
    near = Tolerance.of_dtype(dtype, 2, 1e-3)
    before, written, tolerances = {}, {}, {}
    for name, (_, _, scale, offset) in _CACHES.items():
        before[name] = _token_rows(inputs[name], mode).clone()
        written[name], tolerances[name] = rows[name], near
        if inputs[name].dtype == torch.int8:
            scaled = rows[name] * inputs[scale].double().cpu()
            if offset in inputs.tensors:
                scaled = scaled + inputs[offset].double().cpu()
            # The nearest integer of a value halfway depends on the last bit: one step of difference is rounding.
            written[name], tolerances[name] = scaled.clamp(-128, 127).round(), Tolerance(0, 1)
    slots = inputs["index"].cpu().flatten()
    if mode == "Norm":
        batch, length = inputs["index"].shape
        slots = slots + torch.arange(batch).repeat_interleave(length) * inputs["k_cache"].shape[2]

    def compare(actual: tuple[Tensor | None, ...]) -> str | None:
        for slot, name in enumerate(_CACHES):
            cache = actual[slot]
            if cache is None:
                return f"output {slot} ({name}) is missing"
            found = _token_rows(cache, mode)
            wrong = scatter_difference(found, before[name], slots, written[name], tolerances[name])
            if wrong:
                return f"output {slot} ({name}): {wrong}"
        if not case.params["is_output_kv"]:
            return None
        fresh = [rows[name].reshape(*inputs["kv"].shape[:3], -1) for name in _CACHES]
        return difference(actual, Reference((None, None, *fresh), (near,) * 4))

    return Reference((None,) * 4, (near,) * 4, compare)


def _token_rows(cache: Tensor, mode: str) -> Tensor:
    """Return a cache as [slots, width], token by token."""
    if mode == "PA_NZ":
        blocks, size, _, width = cache.shape
        group = 32 if cache.element_size() == 1 else 16
        return (
            cache.reshape(blocks, width // group, size, group)
            .permute(0, 2, 1, 3)
            .reshape(blocks * size, width)
        )
    return cache.reshape(-1, cache.shape[-1])
