"""Shapes of models: the shipped table, and any Hugging Face ``config.json``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there on 3.10 only

__all__ = ["ModelShapes", "known_models", "model_table_version", "read_config", "target_models"]

_TP = (1, 2, 4, 8, 16)
_EP = (1, 2, 4, 8, 16, 32, 64)


@attrs.frozen(kw_only=True)
class ModelShapes:
    """The numbers of a model that its operators' shapes depend on; 0 where the model has no such part.

    ``dense`` is whether a layer has a dense feed-forward; ``unknown`` names the fields that its source leaves out
    and that some operator would need. Attention is latent (MLA) where ``kv_lora`` is not 0.
    """

    name: str
    source: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int = 0
    intermediate: int = 0
    dense: bool = True
    q_lora: int = 0
    kv_lora: int = 0
    nope: int = 0
    rope: int = 0
    value_dim: int = 0
    experts: int = 0
    top_k: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0
    tp: tuple[int, ...] = _TP
    ep: tuple[int, ...] = (1,)
    unknown: tuple[str, ...] = ()

    @property
    def latent(self) -> bool:
        return self.kv_lora > 0

    @property
    def query_dim(self) -> int:
        """Width of one query head."""
        return self.nope + self.rope if self.latent else self.head_dim


@lru_cache(maxsize=1)
def _table() -> Mapping[str, object]:
    found: Mapping[str, object] = tomllib.loads(
        resources.files(__package__).joinpath("models.toml").read_text("utf-8")
    )
    return found


def model_table_version() -> int:
    """Return the version of the shipped model table."""
    return int(str(_table()["version"]))


@lru_cache(maxsize=1)
def known_models() -> Mapping[str, ModelShapes]:
    """Return the models of the shipped table by id, in the table's order."""
    entries = _table()["models"]
    assert isinstance(entries, dict)
    found = {}
    for name, entry in entries.items():
        fields = {**entries.get(entry.get("same_as"), {}), **entry}
        found[name] = read_fields(fields, name, f"models.toml ({entry['source']})")
    return found


def target_models(text: str) -> tuple[ModelShapes, ...]:
    """Return the models a comma-separated list names, as ``deepseek-ai/DeepSeek-V3,Qwen/Qwen3-32B``.

    Raises:
        UsageError: A name is not in the table, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = known_models()
    spellings = {_plain(name): name for name in known}
    found = []
    for name in names:
        if _plain(name) not in spellings:
            raise UsageError(f"model {name!r} is not in the model table", hint=_suggestion(name))
        found.append(known[spellings[_plain(name)]])
    if not found:
        raise UsageError(
            f"--target-models {text!r} names no model",
            hint=f"leave the option out for the whole grid; the models are {', '.join(known)}",
        )
    return tuple(dict.fromkeys(found))


def _plain(name: str) -> str:
    return re.sub(r"[-_./ ]", "", name.lower())


def _suggestion(name: str) -> str:
    known = known_models()
    plain = _plain(name)
    short = {"dsv3": "deepseek-ai/DeepSeek-V3", "llama70b": "meta-llama/Meta-Llama-3-70B"}
    close = [full for full in known if plain in _plain(full) or _plain(full.split("/")[-1]) in plain]
    guess = short.get(plain) or (close[0] if close else "")
    others = "perfcollect grid --model-config CONFIG.json reads any model's config"
    return f"did you mean {guess}? {others}" if guess else f"the models are {', '.join(known)}; {others}"


def read_config(path: Path) -> ModelShapes:
    """Read the ``config.json`` of a model (or the directory it is in); nothing is fetched.

    Raises:
        DataError: It cannot be read, or lacks a field that is never guessed; the message names it.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"model config {file} cannot be read: {error.strerror or error}",
            hint="name the config.json of a Hugging Face model",
        ) from error
    except ValueError as error:
        raise DataError(
            f"model config {file} is no JSON: {error}", hint="name the config.json of a Hugging Face model"
        ) from error
    if not isinstance(fields, dict):
        raise DataError(f"model config {file} holds a {type(fields).__name__}, expected an object")
    inner = fields.get("text_config")
    if isinstance(inner, dict) and "hidden_size" not in fields:
        fields = inner
    name = str(fields.get("_name_or_path") or "") or (file.parent.name or file.stem)
    return read_fields(fields, name, str(file))


def read_fields(fields: Mapping[str, object], name: str, source: str) -> ModelShapes:
    """Return the shapes that the *fields* of a config describe; raises ``DataError`` where one is missing or odd."""
    take = _Fields(fields, source)
    hidden = take.required("hidden_size", "d_model", "n_embd")
    heads = take.required("num_attention_heads", "n_head")
    latent = take.optional("kv_lora_rank")
    numbers: dict[str, int] = {}
    if latent:
        numbers = {
            "q_lora": take.optional("q_lora_rank"),
            "kv_lora": latent,
            "nope": take.required("qk_nope_head_dim"),
            "rope": take.required("qk_rope_head_dim"),
            "value_dim": take.required("v_head_dim"),
        }
        head_dim = numbers["value_dim"]
    else:
        head_dim = take.optional("head_dim", "kv_channels") or _exact(hidden, heads, source)
    experts = take.optional("n_routed_experts", "num_experts", "num_local_experts")
    if experts:
        numbers |= {
            "experts": experts,
            "top_k": take.required("num_experts_per_tok", "top_k", "num_experts_per_token"),
            "expert_intermediate": take.required("moe_intermediate_size", "expert_intermediate_size"),
        }
        shared = take.optional("shared_expert_intermediate_size")
        count = take.optional("n_shared_experts", "num_shared_experts")
        numbers["shared_intermediate"] = shared or count * numbers["expert_intermediate"]
    # A mixture without dense layers still states intermediate_size, often the expert's.
    states_dense = (
        "dense_layers" in fields or "first_k_dense_replace" in fields or "mlp_only_layers" in fields
    )
    dense_layers = take.optional("dense_layers", "first_k_dense_replace") or bool(
        fields.get("mlp_only_layers")
    )
    dense = not experts or bool(dense_layers) or not states_dense
    if dense:
        numbers["intermediate"] = (
            take.optional("intermediate_size", "ffn_dim", "n_inner")
            if experts
            else take.required("intermediate_size", "ffn_dim", "n_inner")
        )
    if numbers.get("intermediate") and not states_dense and experts:
        take.missing("first_k_dense_replace")
    index_heads = take.optional("index_n_heads")
    if index_heads:
        index = {"index_dim": take.named("index_head_dim"), "index_top_k": take.named("index_topk")}
        if all(index.values()):
            numbers |= {"index_heads": index_heads, **index}
    ep = tuple(degree for degree in take.degrees("ep") or _EP if experts and experts % degree == 0)
    return ModelShapes(
        name=name,
        source=source,
        hidden=hidden,
        heads=heads,
        kv_heads=take.optional("num_key_value_heads", "multi_query_group_num") or heads,
        head_dim=head_dim,
        vocabulary=take.named("vocab_size"),
        dense=dense,
        tp=take.degrees("tp") or _TP,
        ep=ep or (1,),
        unknown=tuple(take.unknown),
        **numbers,
    )


def _exact(hidden: int, heads: int, source: str) -> int:
    if hidden % heads:
        raise DataError(
            f"model config {source}: head_dim is not stated and {hidden} is no multiple of {heads} heads",
            hint="add head_dim to the config",
        )
    return hidden // heads


class _Fields:
    """Reads numbers out of a config and remembers what it does not state."""

    def __init__(self, fields: Mapping[str, object], source: str) -> None:
        self._fields, self._source = fields, source
        self.unknown: list[str] = []

    def optional(self, *names: str) -> int:
        """Return the first of *names* that the config states, else 0: the model has no such part."""
        for name in names:
            value = self._fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise DataError(f"model config {self._source}: {name} is {value!r}, expected a whole number")
            return value
        return 0

    def required(self, *names: str) -> int:
        """Return a number no model is without."""
        value = self.optional(*names)
        if not value:
            raise DataError(
                f"model config {self._source} states no {names[0]}, expected a number above 0",
                hint=f"it is never guessed; add {' or '.join(names)} to the config",
            )
        return value

    def named(self, name: str) -> int:
        """Return a number; where it is missing its operators are left out, and the report says so."""
        value = self.optional(name)
        if not value:
            self.unknown.append(name)
        return value

    def missing(self, name: str) -> None:
        self.unknown.append(name)

    def degrees(self, name: str) -> tuple[int, ...]:
        """Return the parallel degrees the shipped table states."""
        value = self._fields.get(name)
        return (
            tuple(int(str(v)) for v in value)
            if isinstance(value, Sequence) and not isinstance(value, str)
            else ()
        )
