"""Make one call of every kernel type through the real torch_npu, each in a marked part of the launch log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch_npu

__all__ = ["LAUNCHES", "main"]

_BF16, _HALF, _FLOAT, _INT8, _INT32, _INT64 = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.int8,
    torch.int32,
    torch.int64,
)
LAUNCHES: dict[str, Callable[[], Any]] = {}


def _launch(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        LAUNCHES[name] = function
        return function

    return register


def _empty(*shape: int, dtype: torch.dtype = _BF16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="npu")


def _nz(tensor: torch.Tensor) -> torch.Tensor:
    return torch_npu.npu_format_cast(tensor, 29)


def _lengths(*values: int, dtype: torch.dtype = _INT32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).npu()


@_launch("MatMulV2 of (K,N) storage")
def _mm() -> Any:
    return torch.mm(_empty(136, 5120), _empty(5120, 768))


@_launch("MatMulV2 of (N,K) storage")
def _mm_transposed() -> Any:
    return torch.mm(_empty(136, 5120), _empty(768, 5120).t())


@_launch("MatMulV2 of a FRACTAL_NZ weight, transposed")
def _mm_nz() -> Any:
    return torch.mm(_empty(136, 5120), _nz(_empty(768, 5120)).t())


@_launch("MatMulV2 of a FRACTAL_NZ weight, plain")
def _mm_nz_plain() -> Any:
    return torch.mm(_empty(16, 7168), _nz(_empty(7168, 2112)))


@_launch("MatMulV2 with a bias")
def _addmm() -> Any:
    return torch.addmm(_empty(768), _empty(136, 5120), _empty(768, 5120).t())


@_launch("MatMulV3 with a 32-bit result")
def _mm_float() -> Any:
    return torch.mm(_empty(1024, 512), _empty(512, 256), out_dtype=_FLOAT)


@_launch("BatchMatMulV2")
def _bmm() -> Any:
    return torch.bmm(_empty(16, 16, 128), _empty(16, 128, 512))


@_launch("TransposeBatchMatMul")
def _transpose_bmm() -> Any:
    return torch_npu.npu_transpose_batchmatmul(_empty(16, 4, 512), _empty(16, 512, 128))


@_launch("Add")
def _add() -> Any:
    return torch.add(_empty(136, 5120), _empty(136, 5120))


@_launch("Add of a scalar")
def _adds() -> Any:
    return torch.add(_empty(16, dtype=_INT32), 3)


@_launch("RmsNorm")
def _rms_norm() -> Any:
    return torch_npu.npu_rms_norm(_empty(136, 5120), _empty(5120), epsilon=1e-6)


@_launch("AddRmsNorm")
def _add_rms_norm() -> Any:
    return torch_npu.npu_add_rms_norm(_empty(136, 5120), _empty(136, 5120), _empty(5120), 1e-6)


@_launch("SwiGlu")
def _swiglu() -> Any:
    return torch_npu.npu_swiglu(_empty(136, 3200), dim=-1)


@_launch("SoftmaxV2")
def _softmax() -> Any:
    return torch.softmax(_empty(4, 151936, dtype=_FLOAT), -1)


@_launch("DynamicQuant")
def _dynamic_quant() -> Any:
    return torch_npu.npu_dynamic_quant(_empty(16, 7168))


@_launch("DynamicQuant with smooth scales")
def _dynamic_quant_smooth() -> Any:
    return torch_npu.npu_dynamic_quant(_empty(32, 2048), smooth_scales=_empty(2048))


@_launch("AscendQuantV2")
def _quantize() -> Any:
    return torch_npu.npu_quantize(_empty(16, 7168), _empty(7168), _empty(7168), torch.qint8, -1, False)


@_launch("AscendQuantV2 without an offset")
def _quantize_no_offset() -> Any:
    return torch_npu.npu_quantize(_empty(256, 2048), _empty(2048), None, torch.qint8, -1, False)


@_launch("InterleaveRope")
def _interleave_rope() -> Any:
    return torch_npu.npu_interleave_rope(_empty(4, 16, 1, 64), _empty(4, 1, 1, 64), _empty(4, 1, 1, 64))


@_launch("GatherV2")
def _embedding() -> Any:
    return torch.nn.functional.embedding(_empty(136, dtype=_INT64), _empty(9496, 5120))


@_launch("GatherV2 by index_select")
def _index_select() -> Any:
    return torch.index_select(_empty(8, 9496, 64), 1, _empty(136, dtype=_INT64))


@_launch("Index")
def _index() -> Any:
    return _empty(163840, 64)[_empty(4099, dtype=_INT64)]


@_launch("ScatterNdUpdate")
def _scatter() -> Any:
    return torch_npu.npu_scatter_nd_update_(
        _empty(226048, 128), _empty(102, 1, dtype=_INT32), _empty(102, 128)
    )


@_launch("MaskedFill")
def _masked_fill() -> Any:
    return _empty(136, 5120).masked_fill_(_empty(136, 1, dtype=torch.bool), 0.0)


@_launch("MoeTokenPermute")
def _permute() -> Any:
    return torch_npu.npu_moe_token_permute(_empty(4, 7168), _empty(4, 8, dtype=_INT32))


@_launch("MoeTokenUnpermute")
def _unpermute() -> Any:
    return torch_npu.npu_moe_token_unpermute(_empty(32, 7168), _empty(32, dtype=_INT32), _empty(4, 8))


@_launch("TensorMove")
def _copy() -> Any:
    return _empty(4112, 5120).copy_(_empty(4112, 5120))


@_launch("Cast")
def _cast() -> Any:
    return _empty(64, 64).to(_FLOAT)


@_launch("Transpose")
def _transpose() -> Any:
    return _empty(16, 128, 512).permute(1, 0, 2).contiguous()


@_launch("Slice")
def _slice() -> Any:
    return _empty(16, 2112)[:, :1536].contiguous()


@_launch("PadV3")
def _pad() -> Any:
    return torch.nn.functional.pad(_empty(4099, 7168), (0, 0, 0, 13))


@_launch("Sort")
def _sort() -> Any:
    return torch.sort(_empty(4, 151936, dtype=_FLOAT), dim=-1)


@_launch("ArgMaxV2")
def _argmax() -> Any:
    return torch.argmax(_empty(4, 151936, dtype=_FLOAT), -1)


@_launch("FusedInferAttentionScore, paged")
def _attention() -> Any:
    cache = _empty(4096, 128, 128)
    return torch_npu.npu_fused_infer_attention_score(
        _empty(64, 8, 128),
        cache,
        cache,
        atten_mask=_empty(2048, 2048, dtype=_INT8),
        block_table=_empty(64, 32, dtype=_INT32),
        input_layout="TND",
        block_size=128,
        actual_seq_lengths=list(range(1, 65)),
        actual_seq_lengths_kv=[4096] * 64,
        num_key_value_heads=1,
        num_heads=8,
        scale=128**-0.5,
        sparse_mode=3,
    )


@_launch("FusedInferAttentionScore, absorbed MLA")
def _attention_v2() -> Any:
    cache = _empty(2048, 1, 128, 512)
    return torch_npu.npu_fused_infer_attention_score_v2(
        _empty(32, 16, 1, 512),
        cache,
        cache,
        query_rope=_empty(32, 16, 1, 64),
        key_rope=_empty(2048, 1, 128, 64),
        actual_seq_kvlen=[4096] * 32,
        block_table=_empty(32, 32, dtype=_INT32),
        num_query_heads=16,
        num_key_value_heads=1,
        input_layout="BNSD_NBSD",
        softmax_scale=192**-0.5,
        block_size=128,
    )


@_launch("GroupedMatmul")
def _grouped() -> Any:
    return torch_npu.npu_grouped_matmul(
        [_empty(1024, 2048)],
        [_empty(16, 2048, 1536)],
        group_list=_empty(16, dtype=_INT64),
        split_item=2,
        group_type=0,
        group_list_type=0,
    )


@_launch("GroupedMatmul, quantised")
def _grouped_quant() -> Any:
    return torch_npu.npu_grouped_matmul(
        [_empty(512, 2048, dtype=_INT8)],
        [_nz(_empty(16, 2048, 7168, dtype=_INT8))],
        scale=[_empty(16, 7168)],
        per_token_scale=[_empty(512, dtype=_FLOAT)],
        group_list=_empty(16, dtype=_INT64),
        split_item=2,
        group_type=0,
        group_list_type=0,
        output_dtype=_BF16,
    )


@_launch("GroupedMatmulSwigluQuant")
def _grouped_swiglu() -> Any:
    return torch_npu.npu_grouped_matmul_swiglu_quant(
        _empty(128, 7168, dtype=_INT8),
        _nz(_empty(16, 7168, 4096, dtype=_INT8)),
        _empty(16, dtype=_INT64),
        _empty(16, 4096, dtype=_FLOAT),
        _empty(128, dtype=_FLOAT),
    )


@_launch("QuantBatchMatmulV3")
def _quant_matmul() -> Any:
    return torch_npu.npu_quant_matmul(
        _empty(16, 5120, dtype=_INT8),
        _empty(6400, 5120, dtype=_INT8).t(),
        _empty(6400),
        pertoken_scale=_empty(16, dtype=_FLOAT),
        output_dtype=_BF16,
    )


@_launch("QuantBatchMatmulV3 of a FRACTAL_NZ weight with a bias")
def _quant_matmul_nz() -> Any:
    return torch_npu.npu_quant_matmul(
        _empty(136, 7168, dtype=_INT8),
        _nz(_empty(7168, 2112, dtype=_INT8)),
        _empty(2112, dtype=_FLOAT),
        bias=_empty(2112, dtype=_INT32),
        output_dtype=_BF16,
    )


@_launch("KvRmsNormRopeCache")
def _kv_cache() -> Any:
    return torch_npu.npu_kv_rmsnorm_rope_cache(
        _empty(64, 1, 1, 576),
        _empty(512),
        _empty(64, 1, 1, 64),
        _empty(64, 1, 1, 64),
        _empty(64, dtype=_INT64),
        _empty(2048, 128, 1, 64),
        _empty(2048, 128, 1, 512),
        epsilon=1e-5,
        cache_mode="PA",
    )


@_launch("LightningIndexer")
def _indexer() -> Any:
    return torch_npu.npu_lightning_indexer(
        _empty(102, 32, 128),
        _empty(1766, 128, 1, 128),
        _empty(102, 32),
        actual_seq_lengths_query=_empty(34, dtype=_INT32),
        actual_seq_lengths_key=_empty(34, dtype=_INT32),
        block_table=_empty(34, 1584, dtype=_INT32),
        layout_query="TND",
        layout_key="PA_BSND",
        sparse_count=2048,
        sparse_mode=3,
    )


@_launch("SparseFlashAttention")
def _sparse_attention() -> Any:
    cache = _empty(1766, 128, 1, 512)
    return torch_npu.npu_sparse_flash_attention(
        _empty(102, 16, 512),
        cache,
        cache,
        _empty(102, 1, 2048, dtype=_INT32),
        192**-0.5,
        block_table=_empty(34, 1584, dtype=_INT32),
        actual_seq_lengths_query=_empty(34, dtype=_INT32),
        actual_seq_lengths_kv=_empty(34, dtype=_INT32),
        query_rope=_empty(102, 16, 64),
        key_rope=_empty(1766, 128, 1, 64),
        layout_query="TND",
        layout_kv="PA_BSND",
        sparse_block_size=1,
        sparse_mode=3,
        attention_mode=2,
    )


@_launch("RINGMLAPrefillBF16Kernel, first ring")
def _ring() -> Any:
    return torch_npu.atb.npu_ring_mla(
        _empty(4096, 16, 128),
        _empty(4096, 16, 64),
        _empty(4096, 16, 128),
        _empty(4096, 16, 64),
        _empty(4096, 16, 128),
        _empty(512, 512),
        torch.tensor([4096], dtype=_INT32),
        16,
        16,
        qk_scale=192**-0.5,
        kernel_type="kernel_type_high_precision",
        mask_type="mask_type_triu",
        input_layout="type_bsnd",
        calc_type="calc_type_first_ring",
    )


@_launch("RINGMLAPrefillBF16Kernel, merge")
def _ring_merge() -> Any:
    return torch_npu.atb.npu_ring_mla(
        _empty(2048, 16, 128),
        _empty(2048, 16, 64),
        _empty(8192, 16, 128),
        _empty(8192, 16, 64),
        _empty(8192, 16, 128),
        None,
        torch.tensor([[2048], [8192]], dtype=_INT32),
        16,
        16,
        pre_out=_empty(2048, 16, 128),
        prev_lse=_empty(16, 2048, dtype=_FLOAT),
        qk_scale=192**-0.5,
        kernel_type="kernel_type_high_precision",
        mask_type="no_mask",
        input_layout="type_bsnd",
        calc_type="calc_type_default",
    )


@_launch("ReshapeAndCacheNdKernel")
def _reshape_and_cache() -> Any:
    return torch_npu._npu_reshape_and_cache(
        _empty(16, 1, 128),
        _empty(16, 1, 128),
        _empty(4096, 128, 1, 128),
        _empty(4096, 128, 1, 128),
        _empty(16, dtype=_INT32),
    )


def main(names: list[str]) -> int:
    """Run the named launches, or all; print one line for each."""
    torch.npu.set_device(0)
    torch.npu.config.allow_internal_format = True
    torch.npu.set_compile_mode(jit_compile=False)
    mstx = torch_npu.npu.mstx
    failures = 0
    for name, function in LAUNCHES.items():
        if names and name not in names:
            continue
        mstx.mark(f"begin {name}")
        try:
            function()
            torch.npu.synchronize()
        except Exception as error:  # every launch is to be tried
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        else:
            print(f"ok {name}", flush=True)
        mstx.mark(f"end {name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
