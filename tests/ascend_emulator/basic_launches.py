"""One call of each kernel type that is no fused operator, with shapes of the fact sheets."""

from __future__ import annotations

from typing import Any

import torch
import torch_npu
from launch_registry import FLOAT, INT32, INT64, empty, launch, nz

__all__: list[str] = []


@launch("MatMulV2 of (K,N) storage")
def _mm() -> Any:
    return torch.mm(empty(136, 5120), empty(5120, 768))


@launch("MatMulV2 of (N,K) storage")
def _mm_transposed() -> Any:
    return torch.mm(empty(136, 5120), empty(768, 5120).t())


@launch("MatMulV2 of a FRACTAL_NZ weight, transposed")
def _mm_nz() -> Any:
    return torch.mm(empty(136, 5120), nz(empty(768, 5120)).t())


@launch("MatMulV2 of a FRACTAL_NZ weight, plain")
def _mm_nz_plain() -> Any:
    return torch.mm(empty(16, 7168), nz(empty(7168, 2112)))


@launch("MatMulV2 with a bias")
def _addmm() -> Any:
    return torch.addmm(empty(768), empty(136, 5120), empty(768, 5120).t())


@launch("MatMulV3 with a 32-bit result")
def _mm_float() -> Any:
    return torch.mm(empty(1024, 512), empty(512, 256), out_dtype=FLOAT)


@launch("BatchMatMulV2")
def _bmm() -> Any:
    return torch.bmm(empty(16, 16, 128), empty(16, 128, 512))


@launch("TransposeBatchMatMul")
def _transpose_bmm() -> Any:
    return torch_npu.npu_transpose_batchmatmul(empty(16, 4, 512), empty(16, 512, 128))


@launch("Add")
def _add() -> Any:
    return torch.add(empty(136, 5120), empty(136, 5120))


@launch("Add of a scalar")
def _adds() -> Any:
    return torch.add(empty(16, dtype=INT32), 3)


@launch("RmsNorm")
def _rms_norm() -> Any:
    return torch_npu.npu_rms_norm(empty(136, 5120), empty(5120), epsilon=1e-6)


@launch("AddRmsNorm")
def _add_rms_norm() -> Any:
    return torch_npu.npu_add_rms_norm(empty(136, 5120), empty(136, 5120), empty(5120), 1e-6)


@launch("SwiGlu")
def _swiglu() -> Any:
    return torch_npu.npu_swiglu(empty(136, 3200), dim=-1)


@launch("SoftmaxV2")
def _softmax() -> Any:
    return torch.softmax(empty(4, 151936, dtype=FLOAT), -1)


@launch("DynamicQuant")
def _dynamic_quant() -> Any:
    return torch_npu.npu_dynamic_quant(empty(16, 7168))


@launch("DynamicQuant with smooth scales")
def _dynamic_quant_smooth() -> Any:
    return torch_npu.npu_dynamic_quant(empty(32, 2048), smooth_scales=empty(2048))


@launch("AscendQuantV2")
def _quantize() -> Any:
    return torch_npu.npu_quantize(empty(16, 7168), empty(7168), empty(7168), torch.qint8, -1, False)


@launch("AscendQuantV2 without an offset")
def _quantize_no_offset() -> Any:
    return torch_npu.npu_quantize(empty(256, 2048), empty(2048), None, torch.qint8, -1, False)


@launch("InterleaveRope")
def _interleave_rope() -> Any:
    return torch_npu.npu_interleave_rope(empty(4, 16, 1, 64), empty(4, 1, 1, 64), empty(4, 1, 1, 64))


@launch("GatherV2")
def _embedding() -> Any:
    return torch.nn.functional.embedding(empty(136, dtype=INT64), empty(9496, 5120))


@launch("GatherV2 by index_select")
def _index_select() -> Any:
    return torch.index_select(empty(8, 9496, 64), 1, empty(136, dtype=INT64))


@launch("Index")
def _index() -> Any:
    return empty(163840, 64)[empty(4099, dtype=INT64)]


@launch("ScatterNdUpdate")
def _scatter() -> Any:
    return torch_npu.npu_scatter_nd_update_(empty(226048, 128), empty(102, 1, dtype=INT32), empty(102, 128))


@launch("MaskedFill")
def _masked_fill() -> Any:
    return empty(136, 5120).masked_fill_(empty(136, 1, dtype=torch.bool), 0.0)


@launch("MoeTokenPermute")
def _permute() -> Any:
    return torch_npu.npu_moe_token_permute(empty(4, 7168), empty(4, 8, dtype=INT32))


@launch("MoeTokenUnpermute")
def _unpermute() -> Any:
    return torch_npu.npu_moe_token_unpermute(empty(32, 7168), empty(32, dtype=INT32), empty(4, 8))


@launch("TensorMove")
def _copy() -> Any:
    return empty(4112, 5120).copy_(empty(4112, 5120))


@launch("Cast")
def _cast() -> Any:
    return empty(64, 64).to(FLOAT)


@launch("Transpose")
def _transpose() -> Any:
    return empty(16, 128, 512).permute(1, 0, 2).contiguous()


@launch("Slice")
def _slice() -> Any:
    return empty(16, 2112)[:, :1536].contiguous()


@launch("PadV3")
def _pad() -> Any:
    return torch.nn.functional.pad(empty(4099, 7168), (0, 0, 0, 13))


@launch("Sort")
def _sort() -> Any:
    return torch.sort(empty(4, 151936, dtype=FLOAT), dim=-1)


@launch("ArgMaxV2")
def _argmax() -> Any:
    return torch.argmax(empty(4, 151936, dtype=FLOAT), -1)
