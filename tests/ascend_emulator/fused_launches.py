"""One call of each fused kernel type, with shapes of the fact sheets."""

from __future__ import annotations

from typing import Any

import torch
import torch_npu
from launch_registry import BF16, FLOAT, INT8, INT32, INT64, empty, launch, nz

__all__: list[str] = []


@launch("FusedInferAttentionScore, paged")
def _attention() -> Any:
    cache = empty(4096, 128, 128)
    return torch_npu.npu_fused_infer_attention_score(
        empty(64, 8, 128),
        cache,
        cache,
        atten_mask=empty(2048, 2048, dtype=INT8),
        block_table=empty(64, 32, dtype=INT32),
        input_layout="TND",
        block_size=128,
        actual_seq_lengths=list(range(1, 65)),
        actual_seq_lengths_kv=[4096] * 64,
        num_key_value_heads=1,
        num_heads=8,
        scale=128**-0.5,
        sparse_mode=3,
    )


@launch("FusedInferAttentionScore, absorbed MLA")
def _attention_v2() -> Any:
    cache = empty(2048, 1, 128, 512)
    return torch_npu.npu_fused_infer_attention_score_v2(
        empty(32, 16, 1, 512),
        cache,
        cache,
        query_rope=empty(32, 16, 1, 64),
        key_rope=empty(2048, 1, 128, 64),
        actual_seq_kvlen=[4096] * 32,
        block_table=empty(32, 32, dtype=INT32),
        num_query_heads=16,
        num_key_value_heads=1,
        input_layout="BNSD_NBSD",
        softmax_scale=192**-0.5,
        block_size=128,
    )


@launch("GroupedMatmul")
def _grouped() -> Any:
    return torch_npu.npu_grouped_matmul(
        [empty(1024, 2048)],
        [empty(16, 2048, 1536)],
        group_list=empty(16, dtype=INT64),
        split_item=2,
        group_type=0,
        group_list_type=0,
    )


@launch("GroupedMatmul, quantised")
def _grouped_quant() -> Any:
    return torch_npu.npu_grouped_matmul(
        [empty(512, 2048, dtype=INT8)],
        [nz(empty(16, 2048, 7168, dtype=INT8))],
        scale=[empty(16, 7168)],
        per_token_scale=[empty(512, dtype=FLOAT)],
        group_list=empty(16, dtype=INT64),
        split_item=2,
        group_type=0,
        group_list_type=0,
        output_dtype=BF16,
    )


@launch("GroupedMatmulSwigluQuant")
def _grouped_swiglu() -> Any:
    return torch_npu.npu_grouped_matmul_swiglu_quant(
        empty(128, 7168, dtype=INT8),
        nz(empty(16, 7168, 4096, dtype=INT8)),
        empty(16, dtype=INT64),
        empty(16, 4096, dtype=FLOAT),
        empty(128, dtype=FLOAT),
    )


@launch("QuantBatchMatmulV3")
def _quant_matmul() -> Any:
    return torch_npu.npu_quant_matmul(
        empty(16, 5120, dtype=INT8),
        empty(6400, 5120, dtype=INT8).t(),
        empty(6400),
        pertoken_scale=empty(16, dtype=FLOAT),
        output_dtype=BF16,
    )


@launch("QuantBatchMatmulV3 of a FRACTAL_NZ weight with a bias")
def _quant_matmul_nz() -> Any:
    return torch_npu.npu_quant_matmul(
        empty(136, 7168, dtype=INT8),
        nz(empty(7168, 2112, dtype=INT8)),
        empty(2112, dtype=FLOAT),
        bias=empty(2112, dtype=INT32),
        output_dtype=BF16,
    )


@launch("KvRmsNormRopeCache")
def _kv_cache() -> Any:
    return torch_npu.npu_kv_rmsnorm_rope_cache(
        empty(64, 1, 1, 576),
        empty(512),
        empty(64, 1, 1, 64),
        empty(64, 1, 1, 64),
        empty(64, dtype=INT64),
        empty(2048, 128, 1, 64),
        empty(2048, 128, 1, 512),
        epsilon=1e-5,
        cache_mode="PA",
    )


@launch("LightningIndexer")
def _indexer() -> Any:
    return torch_npu.npu_lightning_indexer(
        empty(102, 32, 128),
        empty(1766, 128, 1, 128),
        empty(102, 32),
        actual_seq_lengths_query=empty(34, dtype=INT32),
        actual_seq_lengths_key=empty(34, dtype=INT32),
        block_table=empty(34, 1584, dtype=INT32),
        layout_query="TND",
        layout_key="PA_BSND",
        sparse_count=2048,
        sparse_mode=3,
    )


@launch("SparseFlashAttention")
def _sparse_attention() -> Any:
    cache = empty(1766, 128, 1, 512)
    return torch_npu.npu_sparse_flash_attention(
        empty(102, 16, 512),
        cache,
        cache,
        empty(102, 1, 2048, dtype=INT32),
        192**-0.5,
        block_table=empty(34, 1584, dtype=INT32),
        actual_seq_lengths_query=empty(34, dtype=INT32),
        actual_seq_lengths_kv=empty(34, dtype=INT32),
        query_rope=empty(102, 16, 64),
        key_rope=empty(1766, 128, 1, 64),
        layout_query="TND",
        layout_kv="PA_BSND",
        sparse_block_size=1,
        sparse_mode=3,
        attention_mode=2,
    )


@launch("RINGMLAPrefillBF16Kernel, first ring")
def _ring() -> Any:
    return torch_npu.atb.npu_ring_mla(
        empty(4096, 16, 128),
        empty(4096, 16, 64),
        empty(4096, 16, 128),
        empty(4096, 16, 64),
        empty(4096, 16, 128),
        empty(512, 512),
        torch.tensor([4096], dtype=INT32),
        16,
        16,
        qk_scale=192**-0.5,
        kernel_type="kernel_type_high_precision",
        mask_type="mask_type_triu",
        input_layout="type_bsnd",
        calc_type="calc_type_first_ring",
    )


@launch("RINGMLAPrefillBF16Kernel, merge")
def _ring_merge() -> Any:
    return torch_npu.atb.npu_ring_mla(
        empty(2048, 16, 128),
        empty(2048, 16, 64),
        empty(8192, 16, 128),
        empty(8192, 16, 64),
        empty(8192, 16, 128),
        None,
        torch.tensor([[2048], [8192]], dtype=INT32),
        16,
        16,
        pre_out=empty(2048, 16, 128),
        prev_lse=empty(16, 2048, dtype=FLOAT),
        qk_scale=192**-0.5,
        kernel_type="kernel_type_high_precision",
        mask_type="no_mask",
        input_layout="type_bsnd",
        calc_type="calc_type_default",
    )


@launch("ReshapeAndCacheNdKernel")
def _reshape_and_cache() -> Any:
    return torch_npu._npu_reshape_and_cache(
        empty(16, 1, 128),
        empty(16, 1, 128),
        empty(4096, 128, 1, 128),
        empty(4096, 128, 1, 128),
        empty(16, dtype=INT32),
    )
