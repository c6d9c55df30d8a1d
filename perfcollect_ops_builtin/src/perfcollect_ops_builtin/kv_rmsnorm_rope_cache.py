"""Replay of KvRmsNormRopeCache: normalise the latent, rotate the key, scatter both into MLA caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Reference,
    Row,
    Skip,
    Slot,
    TensorSpec,
    ValueMaker,
    default_case,
    example_row,
    parse_signature,
    read_examples,
    rope_cos_sin,
    slot_mapping,
)
from perfcollect_core.lengths import tensor_key
from perfcollect_core.tensors import format_shape

from .latent_rows import check_capacity, check_shapes, find_behaviour, find_cache_mode
from .theory.attention import CACHE_AXES
from .theory.attention import cache_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_SLOTS = (
    Slot("kv", "[B,1,S,576]: latent 512, rotary key 64"),
    Slot("gamma", "[512]"),
    Slot("cos", "[B,1,S,64]"),
    Slot("sin", "[B,1,S,64]"),
    Slot("index", "[B*S] cache slots, or [B,S] positions in mode Norm"),
    Slot("k_cache", "[blocks,bs,1,64], or [B,1,L,64]"),
    Slot("ckv_cache", "[blocks,bs,1,512], or [B,1,L,512]"),
    Slot("k_rope_scale", "[64], for an int8 cache", optional=True),
    Slot("c_kv_scale", "[512], for an int8 cache", optional=True),
    Slot("k_rope_offset", "[64]", optional=True),
    Slot("c_kv_offset", "[512]", optional=True),
    Slot("v", "variant with a value of its own: not replayed", optional=True),
)
_INPUTS = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16"
_OUTPUTS = ("64,128,1,64;64,128,1,512;16,1,1,64;16,1,1,512", "DT_BF16;DT_BF16;DT_BF16;DT_BF16")


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch: fp32 norm, rotation of pairs, index_put_ into the caches"
    return OperatorSpec(
        name="KvRmsNormRopeCache",
        summary="RMSNorm of a latent and interleaved rotation of its key part, written into paged caches in place",
        api={"ascend": "torch_npu.npu_kv_rmsnorm_rope_cache", "cuda": stock, "cpu": stock},
        inputs=_SLOTS,
        outputs=(
            Slot("k_cache", "the cache itself"),
            Slot("ckv_cache", "the cache itself"),
            Slot("k_rope", "[B,1,S,64], filled in prefill", optional=True),
            Slot("c_kv", "[B,1,S,512], filled in prefill", optional=True),
        ),
        key_columns=(
            "Runtime cache_mode",
            "Runtime is_output_kv",
            "Runtime epsilon",
            "Runtime index_pattern",
            "Runtime phase",
        ),
        axes=CACHE_AXES,
        value_policy=(
            "kv N(0, 1), gamma N(1, 0.1), cos and sin of real angles; slots distinct: a random slot in a block of its "
            "own (decode), runs of consecutive slots through shuffled blocks (prefill); scales around 127/4"
        ),
        assumptions=(
            "index_pattern: decode where every token can have a block of its own and there are at most 256, "
            "else prefill",
            "is_output_kv: true in prefill, false in decode",
            "cache_mode: PA for a 1-D index, Norm for a 2-D one, PA_NZ for caches of format FRACTAL_NZ",
            "epsilon=1e-06",
            "an int8 cache holds round(value * scale + offset)",
        ),
        negative=(
            example_row("16,1,1,576;512;16,1,1,64;16,1,1,64;15;64,128,1,64;64,128,1,512", _INPUTS, *_OUTPUTS),
            example_row("16,1,1,512;512;16,1,1,64;16,1,1,64;16;64,128,1,64;64,128,1,512", _INPUTS, *_OUTPUTS),
            example_row(
                "256,1,1,576;512;256,1,1,64;256,1,1,64;256;1,128,1,64;1,128,1,512", _INPUTS, *_OUTPUTS
            ),
            example_row(
                "16,1,1,576;512;16,1,1,64;16,1,1,64;16;64,128,1,64;64,128,1,512",
                "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;INT8;INT8",
                *_OUTPUTS,
            ),
        ),
        examples=read_examples("perfcollect_ops_builtin", "operators/kv_rms_norm_rope_cache.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        made = default_case(spec, row)
        if isinstance(made, Skip):
            return made
        if not signature.input(11).is_absent:
            return Skip(
                f"slot 11 (v) is {format_shape(signature.input(11).shape)}: that variant is not replayed"
            )
        check_shapes(made)
        mode = find_cache_mode(row, made)
        if isinstance(mode, Skip):
            return mode
        check_capacity(made, mode)
        params = {"cache_mode": mode} | find_behaviour(row, made, assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    if not row.get("Runtime cache_mode"):
        assumptions.append(f"cache_mode={mode} (by the shape of index and the format of the caches)")
    if made.tensors["k_cache"].dtype == "INT8":
        assumptions.append("int8 cache=round(value * scale + offset)")
    return default_case(spec, row, params=params, assumptions=assumptions)


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    spare = {} if made.params["cache_mode"] == "Norm" else {"k_cache": (0,), "ckv_cache": (0,)}
    tensors = [tensor_key(name, tensor, spare.get(name, ())) for name, tensor in sorted(made.tensors.items())]
    return (spec.name, *tensors, *(f"{name}={made.params[name]}" for name in sorted(made.params)))


def perfcollect_estimate_cost(case: Case) -> Cost:
    kv = case.tensors["kv"]
    tokens = kv.numel // 576
    cached = tokens * (64 * case.tensors["k_cache"].nbytes / case.tensors["k_cache"].numel)
    cached += tokens * (512 * case.tensors["ckv_cache"].nbytes / case.tensors["ckv_cache"].numel)
    read = sum(case.tensors[name].nbytes for name in ("kv", "gamma", "cos", "sin", "index"))
    written = cached + (kv.nbytes if case.params["is_output_kv"] else 0)
    return Cost(tokens * (5.0 * 512 + 6 * 64), float(read + written))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    make = ValueMaker(case.seed, device)
    tensors: dict[str, Tensor] = {}
    for name, spec in case.tensors.items():
        if name == "gamma":
            tensors[name] = make.normal(spec, scale=0.1, mean=1.0)
        elif name == "cos":
            tensors["cos"], tensors["sin"] = rope_cos_sin(make, spec, positions=_positions(case, make))
        elif name == "index":
            tensors[name] = _draw_index(case, make)
        elif name.endswith("_scale"):
            tensors[name] = make.uniform(spec, 0.8 * 127 / 4, 1.2 * 127 / 4)
        elif name != "sin":
            tensors[name] = make.by_dtype(spec)
    return Inputs(tensors)


def _positions(case: Case, make: ValueMaker) -> Tensor | None:
    """Return positions of the tokens: any length for a decode step each, 0, 1, 2, ... in a prefill (``None``)."""
    if case.params["index_pattern"] == "prefill":
        return None
    return make.integers(TensorSpec((case.tensors["cos"].numel // 64,), "INT64"), 0, 32768)


def _draw_index(case: Case, make: ValueMaker) -> Tensor:
    import torch

    spec, cache, kv = (case.tensors[name] for name in ("index", "k_cache", "kv"))
    batch, _, length, _ = kv.shape or (1, 1, 1, 1)
    blocks, size = (cache.shape or (1, 1))[:2]
    if case.params["cache_mode"] == "Norm":
        room = (cache.shape or (1, 1, 1))[2] - length
        starts = make.integers(TensorSpec((batch, 1), "INT64"), 0, room + 1)
        return (starts + torch.arange(length, device=starts.device)).to(make.tensor([0], spec.dtype).dtype)
    prefill = case.params["index_pattern"] == "prefill"
    lengths = None
    if prefill:
        # Sequences whose last blocks would not fit any more are written one after the other.
        fits = batch * -(-length // size) <= blocks
        lengths = [length] * batch if fits and length > 1 else [batch * length]
    return slot_mapping(make, spec, blocks=blocks, block_size=size, lengths=lengths)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    from .latent_cache import bind_torch

    return _bind_ascend(case, inputs) if device.family == "ascend" else bind_torch(case, inputs)


def _bind_ascend(case: Case, inputs: Inputs) -> Kernel:
    import torch_npu

    names = ("kv", "gamma", "cos", "sin", "index", "k_cache", "ckv_cache")
    required = [inputs[name] for name in names]
    optional = {name: tensor for name, tensor in inputs.tensors.items() if name not in names}
    filled = bool(case.params["is_output_kv"])
    arguments = {name: case.params[name] for name in ("epsilon", "cache_mode", "is_output_kv")}

    def outputs(result: object) -> tuple[Tensor | None, ...]:
        caches: tuple[Tensor, ...] = result  # type: ignore[assignment]  # (k_cache, ckv_cache, k_rope, c_kv)
        return (*caches[:2], *(caches[2:4] if filled else (None, None)))

    return Kernel(lambda: torch_npu.npu_kv_rmsnorm_rope_cache(*required, **optional, **arguments), outputs)


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    from .latent_cache import latent_reference

    return latent_reference(case, inputs)
