"""What FusedInferAttentionScore says about itself: its 31 slots, its metadata columns, its assumptions."""

from __future__ import annotations

from perfcollect_core import OperatorSpec, ProfileColumn, Slot

__all__ = ["COLLECTOR_COLUMNS", "RUNTIME_COLUMNS", "SPEC"]

#: Columns the profiler parser adds, in their order in the file; it fills five of them.
RUNTIME_COLUMNS = (
    ProfileColumn("Runtime source_profile", source="directory"),
    ProfileColumn("Runtime actual_seq_lengths_shape", slot=5),
    ProfileColumn("Runtime actual_seq_lengths_values"),
    ProfileColumn("Runtime actual_seq_lengths_kv_shape", slot=6),
    ProfileColumn("Runtime actual_seq_lengths_kv_values"),
    ProfileColumn("Runtime avg_seq_len"),
    ProfileColumn("Runtime block_table_shape", slot=14),
    ProfileColumn("Runtime block_table_valid_blocks"),
    ProfileColumn("Runtime num_heads"),
    ProfileColumn("Runtime num_key_value_heads"),
    ProfileColumn("Runtime sparse_mode"),
    ProfileColumn("Runtime input_layout"),
    ProfileColumn("Runtime block_size"),
    ProfileColumn("Runtime attn_state"),
    ProfileColumn("Runtime kv_cache_mode"),
    ProfileColumn("Runtime metadata_completeness", value="profile_shapes_only"),
)

#: Metadata columns of the public 910B tables, which record three slots.
COLLECTOR_COLUMNS = ("Op Type", "Batch", "Seq Len", "Num Heads", "Num KV Heads", "Head Size")

_SLOTS = (
    Slot("query", "[T,N,D] TND, [B,N,S,D] BNSD, [B,S,N,D] BSND or [B,S,N*D] BSH"),
    Slot("key", "as the query with the key heads, or a paged cache [blocks,bs,Nkv*D], [blocks,Nkv,bs,D]"),
    Slot("value", "as the key"),
    Slot("pse_shift", "additive position bias", optional=True),
    Slot("atten_mask", "true where masked: 2048 x 2048 compressed, or [B,1,Sq,Skv]", optional=True),
    Slot("actual_seq_lengths", "host list, one entry a sequence: only the count is recorded", metadata=True),
    Slot("actual_seq_lengths_kv", "host list, one entry a sequence", metadata=True),
    Slot("dequant_scale1", "scale of the score matrix", optional=True),
    Slot("quant_scale1", "scale of the probabilities", optional=True),
    Slot("dequant_scale2", "scale of the second product", optional=True),
    Slot("quant_scale2", "output quantisation", optional=True),
    Slot("quant_offset2", "output quantisation", optional=True),
    Slot("antiquant_scale", "KV dequantisation, key and value together", optional=True),
    Slot("antiquant_offset", "KV dequantisation, key and value together", optional=True),
    Slot("block_table", "[B,max blocks] physical block of each logical one", optional=True),
    Slot("query_padding_size", "left padding of the query", optional=True),
    Slot("kv_padding_size", "left padding of key and value", optional=True),
    Slot("key_antiquant_scale", "[Nkv*D] for each channel of an int8 key cache", optional=True),
    Slot("key_antiquant_offset", "[Nkv*D]", optional=True),
    Slot("value_antiquant_scale", "[Nkv*D]", optional=True),
    Slot("value_antiquant_offset", "[Nkv*D]", optional=True),
    Slot("key_shared_prefix", "prefix all sequences share", optional=True),
    Slot("value_shared_prefix", "prefix all sequences share", optional=True),
    Slot("actual_shared_prefix_len", "host list", metadata=True),
    Slot("query_rope", "rotary part of an MLA query, 64 wide", optional=True),
    Slot("key_rope", "rotary part of the MLA cache or key, 64 wide", optional=True),
    Slot("key_rope_antiquant_scale", "scale of an int8 rotary cache", optional=True),
    Slot("dequant_scale_query", "scale of an int8 query (second API only)", optional=True),
    Slot("learnable_sink", "[N] one sink logit a head (second API only)", optional=True),
    Slot("q_start_idx", "host list", metadata=True),
    Slot("kv_start_idx", "host list", metadata=True),
)

SPEC = OperatorSpec(
    name="FusedInferAttentionScore",
    summary="attention for inference: grouped heads, varying lengths, paged KV, MLA with rotary part, int8 KV",
    api={
        "ascend": "torch_npu.npu_fused_infer_attention_score (…_v2 with a sink or an int8 query)",
        "cuda": "torch.nn.functional.scaled_dot_product_attention, sequence by sequence",
        "cpu": "torch.nn.functional.scaled_dot_product_attention, sequence by sequence",
    },
    inputs=_SLOTS,
    outputs=(Slot("attention_out"), Slot("softmax_lse", "fp32, where it was asked for", optional=True)),
    key_columns=(
        "Runtime actual_seq_lengths_values",
        "Runtime actual_seq_lengths_kv_values",
        "Runtime avg_seq_len",
        "Runtime block_table_valid_blocks",
        "Runtime num_heads",
        "Runtime num_key_value_heads",
        "Runtime sparse_mode",
        "Runtime input_layout",
        "Runtime block_size",
        "Runtime cache_layout",
        "Runtime kv_cache_mode",
        "Runtime phase",
        "Runtime topk",
        "Runtime softmax_lse",
        *COLLECTOR_COLUMNS,
    ),
    profile_columns=RUNTIME_COLUMNS,
    value_policy=(
        "query, key and value N(0, 1); int8 caches over the full range with scales around 1/73; block tables of "
        "shuffled distinct blocks; lengths as recorded, else log-normal around the recorded average; masks causal"
    ),
    assumptions=(
        "sparse_mode=3 (three recorded slots with collector columns: causal context attention)",
        "sparse_mode=3 with its 2048 x 2048 mask where metadata says 3 and slot 4 is blank",
        "query_lengths: decode where there are as many sequences as tokens, else an even split",
        "kv_lengths: average, valid blocks, else min(block table columns, blocks / sequences) x block size",
        "layout where two fit the shapes: heads on the axis that is not the sequence's",
        "scale: 192^-0.5 for MLA (before and after absorption), head size^-0.5 otherwise",
        "value=key (absorbed MLA: one latent cache)",
        "pre_tokens and next_tokens: unbounded and 0 where mode 4 records none",
    ),
    negative=(
        {
            # The block table stands one slot too far (15 instead of 14).
            "Input Shapes": "6,16,1,512;905,1,128,512;905,1,128,512;;;6;6;;;;;;;;;6,384;;;;;;;;;"
            "6,16,1,64;905,1,128,64;;;;;",
            "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;;;INT64;INT64;;;;;;;;;INT32;;;;;;;;;DT_BF16;DT_BF16;;;;;",
            "Output Shapes": "6,16,1,512",
            "Output Data Types": "DT_BF16",
        },
        {
            # More blocks in use than the pool has.
            "Input Shapes": "4,8,128;16,128,128;16,128,128;;2048,2048;4;4;;;;;;;;4,32",
            "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64;;;;;;;;INT32",
            "Output Shapes": "4,8,128",
            "Output Data Types": "DT_BF16",
            "Runtime actual_seq_lengths_kv_values": "1024,1024,1024,1024",
        },
        {
            # The heads do not divide.
            "Input Shapes": "128,8,128;128,3,128;128,3,128;;2048,2048;1;1",
            "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64",
            "Output Shapes": "128,8,128",
            "Output Data Types": "DT_BF16",
        },
        {
            # No output.
            "Input Shapes": "128,8,128;128,8,128;128,8,128;;2048,2048;1;1",
            "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64",
            "Output Shapes": "",
            "Output Data Types": "",
        },
    ),
)
