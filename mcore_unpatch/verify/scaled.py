"""A team's TransformerConfig values, read from a file and scaled down to a model that is built in a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcore_unpatch.errors import UsageError

_HEADS, _LAYERS, _HEAD_WIDTH, _EXPERTS = 4, 2, 16, 4
# Where the model runs, how it is split and made fast: `verify` decides that, and what needs a GPU is off.
_OURS = (
    "_parallel", "_dtype", "fusion", "recompute", "fp8", "fp4", "offload", "overlap", "cuda_graph", "pipeline", "p2p",
    "dropout", "deterministic", "init", "barrier", "attention_backend", "moe", "cpu", "timers", "async", "delay",
    "defer", "bf16", "fp16", "persist", "num_microbatches", "perform", "_func", "finalize", "autocast", "inference",
    "tp_comm",
)  # fmt: skip


def read(file: Path) -> tuple[dict[str, Any], list[str]]:
    """The values for a small model, and the names that were left out; raises `UsageError` for what is no such file."""
    given = _load(file)
    from dataclasses import fields

    from megatron.core.transformer.transformer_config import TransformerConfig

    names = {field.name for field in fields(TransformerConfig)}
    unknown = sorted(set(given) - names)
    if unknown:
        raise UsageError(f"{file}: TransformerConfig has no {', '.join(unknown[:5])}.")
    left_out = sorted(name for name in given if any(part in name for part in _OURS))
    kept = {name: value for name, value in given.items() if name not in left_out and value is not None}
    return _scaled(kept), left_out


def _scaled(values: dict[str, Any]) -> dict[str, Any]:
    """The same proportions, smaller: head groups, the width of the MLP, tied or not, MTP."""
    small = dict(values)
    heads = int(values.get("num_attention_heads", _HEADS))
    small["num_attention_heads"] = min(heads, _HEADS)
    groups = int(values.get("num_query_groups") or heads)
    small["num_query_groups"] = max(1, small["num_attention_heads"] * groups // heads)
    small["hidden_size"] = small["num_attention_heads"] * _HEAD_WIDTH
    if ffn := values.get("ffn_hidden_size"):
        small["ffn_hidden_size"] = max(16, int(ffn) * small["hidden_size"] // int(values.get("hidden_size", ffn)))
    small["num_layers"] = min(int(values.get("num_layers", _LAYERS)), _LAYERS)
    for name in ("kv_channels", "mup_base_hidden_size", "softmax_scale", "window_size"):
        small.pop(name, None)
    if values.get("use_mup"):
        small["mup_base_hidden_size"] = small["hidden_size"] // 2
    return small


def _load(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            import tomllib

            data = tomllib.loads(text)
        elif file.suffix in (".yaml", ".yml"):
            import yaml  # type: ignore[import-untyped, unused-ignore]

            data = yaml.safe_load(text)
        else:
            data = json.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ImportError:
        raise UsageError(f"{file}: reading YAML needs PyYAML; install it, or pass JSON or TOML.") from None
    except Exception as error:
        raise UsageError(f"{file} cannot be parsed: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{file} must hold the fields of a TransformerConfig by name.")
    return data
