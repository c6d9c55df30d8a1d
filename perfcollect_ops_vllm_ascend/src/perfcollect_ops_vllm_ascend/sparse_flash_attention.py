"""Replay of SparseFlashAttention: absorbed MLA attention restricted to listed positions of a paged cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Need,
    OperatorSpec,
    Reference,
    Row,
    Skip,
    Slot,
    ValueMaker,
    block_table,
    case_seed,
    cumulative,
    default_case,
    example_row,
    parse_signature,
    read_examples,
)
from perfcollect_core.lengths import (
    KEY_LENGTHS_COLUMN,
    QUERY_LENGTHS_COLUMN,
    case_lengths,
    lengths_key,
    tensor_key,
)

from .sparse_rows import attended_pairs, check_shapes, find_selection, sequence_lengths
from .theory.attention import SPARSE_AXES
from .theory.attention import sparse_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_OPP = (
    "install a torch_npu that has npu_sparse_flash_attention, or vllm-ascend with its custom OPP package (export "
    "ASCEND_CUSTOM_OPP_PATH=…/vllm_ascend/_cann_ops_custom/vendors/<dir> and LD_LIBRARY_PATH to its op_api/lib), then "
    "start again"
)
_DTYPES = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch: gather of listed rows, einsum, softmax, einsum"
    return OperatorSpec(
        name="SparseFlashAttention",
        summary="softmax(scale (q k + q_rope k_rope)) latent over the positions listed for each query",
        api={
            "ascend": "torch_npu.npu_sparse_flash_attention, else torch.ops._C_ascend.npu_sparse_flash_attention",
            "cuda": stock,
            "cpu": stock,
        },
        inputs=(
            Slot("query", "[T,N,512]"),
            Slot("key", "[blocks,bs,1,512] latent cache"),
            Slot("value", "the same buffer as the key"),
            Slot("sparse_indices", "[T,1,k] block ids, -1 past the valid ones"),
            Slot("block_table", "[B,max blocks]"),
            Slot("actual_seq_lengths_query", "[B] running sums"),
            Slot("actual_seq_lengths_kv", "[B]"),
            Slot("query_rope", "[T,N,64]"),
            Slot("key_rope", "[blocks,bs,1,64]"),
        ),
        outputs=(
            Slot("attention_out", "[T,N,512]"),
            Slot("softmax_max", "newer kernels", optional=True),
            Slot("softmax_sum", "newer kernels", optional=True),
        ),
        key_columns=(
            QUERY_LENGTHS_COLUMN,
            KEY_LENGTHS_COLUMN,
            "Runtime avg_seq_len",
            "Runtime block_table_valid_blocks",
            "Runtime block_size",
            "Runtime input_layout",
            "Runtime cache_layout",
            "Runtime kv_cache_mode",
            "Runtime sparse_mode",
            "Runtime num_heads",
            "Runtime num_key_value_heads",
            "Runtime phase",
            "Runtime topk",
            "Runtime sparse_block_size",
            "Runtime sparse_indices_pattern",
            "Runtime sparse_indices_valid_count",
        ),
        needs=(
            Need("schema", "npu::npu_sparse_flash_attention|_C_ascend::npu_sparse_flash_attention", _OPP),
        ),
        axes=SPARSE_AXES,
        value_policy=(
            "query and latent N(0, 1), one buffer for key and value; block tables of shuffled distinct blocks; for each "
            "query distinct positions within its causal limit in random order (uniform, or half of them the latest), "
            "valid ones first, -1 after them"
        ),
        assumptions=(
            "sparse_indices_pattern=uniform",
            "sparse_block_size=1",
            "sparse_mode=3",
            "scale=192^-0.5 (timing-neutral)",
            "query_lengths: decode where there are as many sequences as tokens, else an even split",
            "kv_lengths: average, valid blocks, else min(block table columns, blocks / sequences) x block size",
        ),
        negative=(
            example_row(
                "16,3,512;64,128,1,512;64,128,1,512;16,1,512;16,32;16;16;16,3,64;64,128,1,64",
                _DTYPES, "16,3,512", "DT_BF16",
            ),
            example_row(
                "16,4,512;64,128,1,512;64,128,1,512;15,1,512;16,32;16;16;16,4,64;64,128,1,64",
                _DTYPES, "16,4,512", "DT_BF16",
            ),
            example_row(
                "16,4,512;64,128,2,512;64,128,2,512;16,1,512;16,32;16;16;16,4,64;64,128,2,64",
                _DTYPES, "16,4,512", "DT_BF16",
            ),
            {
                **example_row(
                    "2,4,512;8,128,1,512;8,128,1,512;2,1,512;2,32;2;2;2,4,64;8,128,1,64",
                    _DTYPES, "2,4,512", "DT_BF16",
                ),
                KEY_LENGTHS_COLUMN: "1024,1024",
            },
        ),
        examples=read_examples("perfcollect_ops_vllm_ascend", "operators/sparse_flash_attention.csv"),
    )  # fmt: skip


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        refused = check_shapes(signature)
        if refused:
            return refused
        queries, keys = sequence_lengths(row, signature, case_seed(spec.name, row.ref.key))
        assumptions += [found.assumption for found in (queries, keys) if found.assumption]
        params = find_selection(row, signature, queries.values, keys.values, assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    tensors = {slot.name: signature.input(index) for index, slot in enumerate(spec.inputs)}
    # Key and value are one latent cache: a second buffer would double its traffic.
    del tensors["value"]
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    spare = {"key": (0,), "key_rope": (0,), "block_table": (1,)}
    tensors = [tensor_key(name, tensor, spare.get(name, ())) for name, tensor in sorted(made.tensors.items())]
    modes = [
        f"{name}={made.params[name]}" for name in ("sparse_mode", "sparse_block_size", "pattern", "valid")
    ]
    return (spec.name, *tensors, *modes, lengths_key(*case_lengths(made)))


def perfcollect_estimate_cost(case: Case) -> Cost:
    tokens, heads, _ = case.tensors["query"].shape or (1, 1, 1)
    pairs, distinct = attended_pairs(case)
    nbytes = distinct * 576 * 2 + tokens * heads * (576 + 512) * 2 + case.tensors["sparse_indices"].nbytes
    return Cost(2.0 * heads * pairs * (576 + 512), float(nbytes))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    from .sparse_attention_torch import draw_indices

    make = ValueMaker(case.seed, device)
    queries, keys = case_lengths(case)
    tensors: dict[str, Tensor] = {}
    for name, spec in case.tensors.items():
        if name == "sparse_indices":
            tensors[name] = draw_indices(case, make)
        elif name == "block_table":
            blocks, size = (case.tensors["key"].shape or (0, 1))[:2]
            tensors[name] = block_table(make, spec, blocks=blocks, lengths=keys, block_size=size)
        elif name.startswith("actual_seq_lengths"):
            tensors[name] = make.tensor(cumulative(queries) if name.endswith("query") else keys, spec.dtype)
        else:
            tensors[name] = make.by_dtype(spec)
    tensors["value"] = tensors["key"]
    return Inputs(tensors)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    from .sparse_attention_torch import bind_torch

    return _bind_ascend(case, inputs) if device.family == "ascend" else bind_torch(case, inputs)


def _bind_ascend(case: Case, inputs: Inputs) -> Kernel:
    import torch
    import torch_npu

    if hasattr(torch_npu, "npu_sparse_flash_attention"):
        operator = torch.ops.npu.npu_sparse_flash_attention
    else:
        from vllm_ascend.utils import enable_custom_op  # type: ignore[import-not-found]

        enable_custom_op()
        operator = torch.ops._C_ascend.npu_sparse_flash_attention
    arguments: dict[str, object] = {
        **inputs.tensors,
        "scale_value": case.params["scale"],
        "sparse_block_size": case.params["sparse_block_size"],
        "layout_query": "TND",
        "layout_kv": "PA_BSND",
        "sparse_mode": case.params["sparse_mode"],
        # The only mode there is a kernel for; the default of torch_npu is another.
        "attention_mode": 2,
    }
    known = {argument.name for argument in operator.default._schema.arguments}
    keywords = {name: value for name, value in arguments.items() if name in known}

    def outputs(result: object) -> tuple[Tensor | None, ...]:
        # Older extensions return the output alone, newer ones also what the softmax went through.
        return (result[0],) if isinstance(result, tuple) else (cast("Tensor", result),)

    return Kernel(lambda: operator(**keywords), outputs)


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    from .sparse_attention_torch import sparse_reference

    return sparse_reference(case, inputs)
