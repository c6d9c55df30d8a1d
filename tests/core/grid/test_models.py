"""Model data: the shipped table and config.json files."""

from __future__ import annotations

import json

import pytest

from perfcollect_core.errors import DataError, UsageError
from perfcollect_core.grid.models import known_models, read_config, target_models

LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
MIXTURE = {
    **LLAMA,
    "num_local_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 768,
    "mlp_only_layers": [],
}
LATENT = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a config.json and reads it."""

    def write(fields, **changes):
        path = tmp_path / "some-model" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**fields, **changes}))
        return read_config(path)

    return write


def test_every_model_of_the_table_states_hidden_size_heads_and_vocabulary():
    models = known_models().values()

    assert len(models) == 16
    assert all(m.hidden and m.heads and m.vocabulary and m.source.startswith("models.toml") for m in models)


def test_a_model_that_is_the_same_as_another_adds_its_own_fields():
    v3, v32 = (known_models()[f"deepseek-ai/DeepSeek-{name}"] for name in ("V3", "V3.2"))

    assert (v32.hidden, v32.q_lora, v32.experts) == (v3.hidden, v3.q_lora, v3.experts)
    assert (v3.index_heads, v32.index_heads, v32.index_top_k) == (0, 64, 2048)


def test_ids_are_compared_without_case_and_punctuation():
    (model,) = target_models(" Deepseek-AI/deepseek_v3 ,")

    assert model.name == "deepseek-ai/DeepSeek-V3"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("dsv3", "model 'dsv3' is not in the model table", "did you mean deepseek-ai/DeepSeek-V3?"),
        ("Qwen3-32B", "model 'Qwen3-32B' is not in the model table", "did you mean Qwen/Qwen3-32B?"),
        ("acme/x", "model 'acme/x' is not in the model table", "the models are Qwen/Qwen3-0.6B,"),
        (",", "--target-models ',' names no model", "leave the option out for the whole grid"),
    ],
)
def test_a_name_that_is_no_model_gets_a_sentence_and_a_suggestion(text, message, hint):
    with pytest.raises(UsageError) as caught:
        target_models(text)

    assert str(caught.value) == message
    assert caught.value.hint.startswith(hint)


def test_a_null_head_dim_is_the_share_of_one_head(config):
    assert config(LLAMA, head_dim=None).head_dim == 128


def test_a_stated_head_dim_wins_over_the_share_of_one_head(config):
    assert config(LLAMA, head_dim=256).head_dim == 256


def test_the_mixture_of_a_config_without_dense_layers_has_no_dense_feed_forward(config):
    model = config(MIXTURE)

    assert (model.experts, model.top_k, model.expert_intermediate, model.intermediate) == (64, 4, 768, 0)


def test_the_name_of_a_config_is_that_of_its_directory(config):
    assert config(LLAMA).name == "some-model"


@pytest.mark.parametrize(
    ("fields", "gone", "message"),
    [
        (LLAMA, "hidden_size", "states no hidden_size, expected a number above 0"),
        (LLAMA, "num_attention_heads", "states no num_attention_heads, expected a number above 0"),
        (LLAMA, "intermediate_size", "states no intermediate_size, expected a number above 0"),
        (MIXTURE, "moe_intermediate_size", "states no moe_intermediate_size, expected a number above 0"),
        (MIXTURE, "num_experts_per_tok", "states no num_experts_per_tok, expected a number above 0"),
        (LATENT, "v_head_dim", "states no v_head_dim, expected a number above 0"),
    ],
)
def test_a_field_that_is_missing_is_named_and_never_guessed(config, tmp_path, fields, gone, message):
    with pytest.raises(DataError) as caught:
        config({name: value for name, value in fields.items() if name != gone})

    assert str(caught.value) == f"model config {tmp_path}/some-model/config.json {message}"
    assert caught.value.hint.startswith("it is never guessed; add ")


def test_an_unknown_part_is_listed_and_the_rest_is_used(config):
    model = config(LATENT, index_n_heads=32)

    assert model.unknown == ("index_head_dim", "index_topk")
    assert (model.index_heads, model.heads) == (0, 128)


def test_a_head_dim_that_cannot_be_worked_out_is_refused(config):
    with pytest.raises(DataError, match="head_dim is not stated and 4100 is no multiple of 32 heads"):
        config(LLAMA, hidden_size=4100)


def test_a_number_that_is_a_text_is_refused(config):
    with pytest.raises(DataError, match="vocab_size is '128256', expected a whole number"):
        config(LLAMA, vocab_size="128256")


def test_a_file_that_is_no_json_or_not_there_ends_in_a_sentence(tmp_path):
    broken = tmp_path / "config.json"
    broken.write_text("{")

    for path, message in ((broken, "is no JSON"), (tmp_path / "none.json", "cannot be read: No such file")):
        with pytest.raises(DataError) as caught:
            read_config(path)
        assert str(caught.value).startswith(f"model config {path} {message}")
