"""Replay of LightningIndexer: the scorer of sparse attention that picks each query's best keys."""

from __future__ import annotations

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

from .index_rows import check_shapes, find_modes, sequence_lengths
from .theory.attention import INDEXER_AXES
from .theory.attention import indexer_rows as perfcollect_generate_rows  # noqa: F401  # a hook

_SLOTS = (
    Slot("query", "[T,N,128], or [B,S,N,128]"),
    Slot("key", "paged cache [blocks,bs,1,128], or [T,1,128], or [B,S,1,128]"),
    Slot("weights", "[T,N] weight of each head, or [B,S,N]"),
    Slot("actual_seq_lengths_query", "[B] running sums (packed) or lengths", optional=True),
    Slot("actual_seq_lengths_key", "[B] lengths (paged, padded) or running sums", optional=True),
    Slot("block_table", "[B,max blocks]", optional=True),
)
_BF16 = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32"
_CALL = "torch.matmul, torch.relu and torch.topk, sequence by sequence"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    return OperatorSpec(
        name="LightningIndexer",
        summary="for each query the positions of the top-k keys by sum over heads of weight * relu(q k)",
        api={"ascend": "torch_npu.npu_lightning_indexer", "cuda": _CALL, "cpu": _CALL},
        inputs=_SLOTS,
        outputs=(
            Slot("sparse_indices", "[T,1,k] positions, -1 where there are fewer keys"),
            Slot("sparse_values", "[T,1,k] scores where asked for, else empty", optional=True),
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
        ),
        needs=(
            Need(
                "schema",
                "npu::npu_lightning_indexer",
                "install a torch_npu and a CANN new enough to have aclnnLightningIndexer",
            ),
        ),
        axes=INDEXER_AXES,
        value_policy=(
            "query and key N(0, 1), weights N(0, 1 / (heads * 128)) so that scores are of order one and without ties; "
            "block tables of shuffled distinct blocks; causal lengths"
        ),
        assumptions=(
            "sparse_mode=3 (causal) where it is not recorded",
            "query_lengths: decode where there are as many sequences as tokens, else an even split",
            "kv_lengths: average, valid blocks, else min(block table columns, blocks / sequences) x block size",
        ),
        negative=(
            example_row("16,32,128;64,128,1,128;16,64;16;16;16,64", _BF16, "16,1,2048;0", "INT32;FLOAT"),
            example_row("16,32,96;64,128,1,96;16,32;16;16;16,64", _BF16, "16,1,2048;0", "INT32;FLOAT"),
            example_row("16,32,128;64,128,1,128;16,32;16;16;16,64", _BF16, "16,1,3000;0", "INT32;FLOAT"),
            {
                **example_row("4,32,128;8,128,1,128;4,32;4;4;4,64", _BF16, "4,1,2048;0", "INT32;FLOAT"),
                KEY_LENGTHS_COLUMN: "512,512,512,512",
            },
            example_row("16,32,128;64,128,1,128;16,32;16;16;16,64", _BF16),
        ),
        examples=read_examples("perfcollect_ops_builtin", "operators/lightning_indexer.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    try:
        signature = parse_signature(row.cells)
        check_shapes(signature)
        queries, keys = sequence_lengths(row, signature, case_seed(spec.name, row.ref.key))
        params = find_modes(row, signature)
    except ValueError as error:
        return Skip.invalid(str(error))
    assumptions = [found.assumption for found in (queries, keys) if found.assumption]
    if not row.get("Runtime sparse_mode"):
        assumptions.append("sparse_mode=3 (not recorded: causal)")
    params |= {"q_lengths": queries.values, "kv_lengths": keys.values}
    return default_case(spec, row, params=params, assumptions=assumptions)


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    paged = made.params["layout_key"] == "PA_BSND"
    spare = {"key": (0,), "block_table": (1,)} if paged else {}
    tensors = [tensor_key(name, tensor, spare.get(name, ())) for name, tensor in sorted(made.tensors.items())]
    modes = [
        str(made.params[name])
        for name in ("layout_query", "layout_key", "topk", "sparse_mode", "return_value")
    ]
    phase = row.get("Runtime kv_cache_mode")
    return (spec.name, *tensors, *modes, phase, lengths_key(*case_lengths(made)))


def perfcollect_estimate_cost(case: Case) -> Cost:
    heads = (case.tensors["query"].shape or (1, 1))[-2]
    queries, keys = case_lengths(case)
    pairs = sum(q * kv for q, kv in zip(queries, keys, strict=True))
    if case.params["sparse_mode"] == 3:
        pairs -= sum(q * (q - 1) // 2 for q in queries)
    read = case.tensors["query"].nbytes + case.tensors["weights"].nbytes + sum(keys) * 128 * 2
    return Cost(heads * pairs * (2.0 * 128 + 3), float(read + sum(t.nbytes for t in case.outputs)))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    make = ValueMaker(case.seed, device)
    heads = (case.tensors["query"].shape or (1, 1))[-2]
    lengths = dict(zip(("query", "key"), case_lengths(case), strict=True))
    tensors = {}
    for name, spec in case.tensors.items():
        if name == "weights":
            tensors[name] = make.normal(spec, scale=(heads * 128) ** -0.5)
        elif name == "block_table":
            blocks, size = (case.tensors["key"].shape or (0, 1))[:2]
            tensors[name] = block_table(make, spec, blocks=blocks, lengths=lengths["key"], block_size=size)
        elif name.startswith("actual_seq_lengths"):
            side = name.rpartition("_")[2]
            packed = case.params[f"layout_{side}"] == "TND"
            tensors[name] = make.tensor(cumulative(lengths[side]) if packed else lengths[side], spec.dtype)
        else:
            tensors[name] = make.by_dtype(spec)
    return Inputs(tensors)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    from .index_scores import bind_torch

    return _bind_ascend(case, inputs) if device.family == "ascend" else bind_torch(case, inputs)


def _bind_ascend(case: Case, inputs: Inputs) -> Kernel:
    import torch
    import torch_npu

    arguments = {**inputs.tensors, "sparse_count": case.params["topk"]}
    for name in ("layout_query", "layout_key", "sparse_mode", "return_value"):
        arguments[name] = case.params[name]
    # Older torch_npu has no return_value and always gives both.
    known = {argument.name for argument in torch.ops.npu.npu_lightning_indexer.default._schema.arguments}
    keywords = {name: value for name, value in arguments.items() if name in known}
    query, key, weights = (keywords.pop(name) for name in ("query", "key", "weights"))
    wanted = case.params["return_value"]

    def outputs(result: object) -> tuple[torch.Tensor | None, ...]:
        indices, *values = result if isinstance(result, tuple) else (result,)
        return indices, values[0] if values and wanted else None

    return Kernel(lambda: torch_npu.npu_lightning_indexer(query, key, weights, **keywords), outputs)


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    from .index_scores import index_reference

    return index_reference(case, inputs)
