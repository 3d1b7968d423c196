"""Small real models of megatron-core, built so that they run on a CPU as they are: nothing stands in for anything."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.packing import gather_shares, zigzag_split
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import reading

SEQUENCE, BATCH = 16, 2
_HEADS, _LAYERS, _HEAD_WIDTH, _EXPERTS = 4, 2, 16, 4
# Where the model runs, how it is split and made fast: `verify` decides that, and what needs a GPU is off.
_OURS = (
    "_parallel", "_dtype", "fusion", "recompute", "fp8", "fp4", "offload", "overlap", "cuda_graph", "pipeline", "p2p",
    "dropout", "deterministic", "init", "barrier", "attention_backend", "moe", "timers", "delay", "defer", "bf16",
    "fp16", "persist", "num_microbatches", "_func", "autocast", "inference", "tp_comm",
)  # fmt: skip
_FUSIONS = ("gradient_accumulation", "masked_softmax", "bias_dropout", "bias_activation", "apply_rope")
_OFF = {
    **dict.fromkeys((f"{name}_fusion" for name in _FUSIONS), False),
    "persist_layer_norm": False,
    "add_bias_linear": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}


@dataclass(frozen=True)
class Setting:
    """One configuration to prove: a model, and the layout of ranks it runs on."""

    name: str
    tied: bool = False
    mtp: bool = False
    hybrid: bool = False
    tp: int = 1
    cp: int = 1
    dtype: str = "float32"
    device: str = "cpu"
    vocab: int = 96
    values: dict[str, Any] = field(default_factory=dict)  # of TransformerConfig, over ours

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


def build(setting: Setting, dtype: torch.dtype | None = None) -> Any:
    """The real model of a setting on this rank; the same weights every time, in its own dtype or another."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    torch.manual_seed(99)
    config = config_of(setting)
    common: dict[str, Any] = {
        "vocab_size": setting.vocab,
        "max_sequence_length": SEQUENCE,
        "share_embeddings_and_output_weights": setting.tied,
        "position_embedding_type": "none" if setting.hybrid else "learned_absolute",
    }
    if setting.hybrid:
        model = _hybrid(config, common)
    else:
        layers = [_layer() for _ in range(config.num_layers)]
        mtp = get_gpt_mtp_block_spec(config, _layer(), use_transformer_engine=False) if setting.mtp else None
        for spec in mtp.layer_specs if mtp is not None else ():
            spec.submodules.enorm = spec.submodules.hnorm = spec.submodules.layer_norm = norm_of
        block = TransformerBlockSubmodules(layer_specs=layers, layer_norm=norm_of)
        model = GPTModel(config, block, mtp_block_spec=mtp, **common)
    if setting.mtp:  # Megatron keeps MTP losses in tensors that it makes on the GPU unless they are there
        for name in ("values", "loss_values", "correct_values", "total_values"):
            MTPLossLoggingHelper.tracker.setdefault(name, torch.zeros(config.mtp_num_layers, device=setting.device))
    return model.to(device=setting.device, dtype=dtype or setting.torch_dtype)


def config_of(setting: Setting) -> Any:
    """The TransformerConfig of a setting; what needs a GPU or Transformer Engine is off."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    half = {"bfloat16": {"bf16": True}, "float16": {"fp16": True}}.get(setting.dtype, {})
    small = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, **_OFF, **setting.values}
    small["mtp_num_layers"] = None
    if setting.hybrid:
        small["num_layers"] = 4
    if setting.mtp:
        small |= {"mtp_num_layers": setting.values.get("mtp_num_layers") or 1, "mtp_loss_scaling_factor": 0.3}
    return TransformerConfig(
        params_dtype=setting.torch_dtype,
        tensor_model_parallel_size=setting.tp,
        context_parallel_size=setting.cp,
        use_cpu_initialization=True,
        **half,
        **small,
    )


def _layer() -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = CausalAttention
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = norm_of
    return spec


def _hybrid(config: Any, common: dict[str, Any]) -> Any:
    """Attention and MLP layers of the GPT layer; the stack's own final norm needs Transformer Engine and is off."""
    from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    layer = _layer().submodules
    attention = TransformerLayerSubmodules(
        input_layernorm=norm_of, self_attention=layer.self_attention, self_attn_bda=layer.self_attn_bda
    )
    mlp = TransformerLayerSubmodules(pre_mlp_layernorm=norm_of, mlp=layer.mlp, mlp_bda=layer.mlp_bda)
    stack = HybridStackSubmodules(
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=attention),
        mlp_layer=ModuleSpec(module=MLPLayer, submodules=mlp),
    )
    spec = ModuleSpec(module=HybridStack, params={"post_layer_norm": False}, submodules=stack)
    return HybridModel(config, spec, hybrid_layer_pattern="*-*-", **common)


def batch(setting: Setting, cp_rank: int) -> dict[str, Any]:
    """This rank's tokens, positions and labels."""
    generator = torch.Generator().manual_seed(5)
    shape = (BATCH, SEQUENCE)
    whole = {
        "input_ids": torch.randint(0, setting.vocab, shape, generator=generator),
        "position_ids": torch.arange(SEQUENCE).expand(shape),
        "labels": torch.randint(0, setting.vocab, shape, generator=generator),
        "loss_mask": torch.ones(shape),
    }
    mine = {name: zigzag_split(value, setting.cp, cp_rank).contiguous() for name, value in whole.items()}
    return {**{name: value.to(setting.device) for name, value in mine.items()}, "attention_mask": None}


def norm_of(config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
    """The norm that the configuration names, from torch itself."""
    kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
    return kind(hidden_size, eps=eps, dtype=config.params_dtype)


class CausalAttention(torch.nn.Module):
    """Causal attention over `[s, b, heads, d]`, exact under zigzag context parallelism."""

    def __init__(self, config: Any, pg_collection: Any = None, **_: Any) -> None:
        super().__init__()
        self.config, self.group = config, pg_collection.cp

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Attend; what packing and masks say does not matter for one causal sequence."""
        ranks, length = self.group.size(), query.shape[0]
        places = [
            zigzag_split(torch.arange(length * ranks, device=query.device), ranks, rank, dim=0) for rank in range(ranks)
        ]
        everyone, mine = torch.cat(places), places[self.group.rank()]
        if ranks > 1:
            key, value = (gather_shares(x, self.group, "summed").flatten(0, 1) for x in (key, value))
        repeat = query.shape[2] // key.shape[2]
        q, k, v = (
            x.permute(1, 2, 0, 3) for x in (query, key.repeat_interleave(repeat, 2), value.repeat_interleave(repeat, 2))
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mine[:, None] >= everyone)
        return out.permute(2, 0, 1, 3).flatten(2)


def read(file: Path) -> tuple[dict[str, Any], list[str]]:
    """A team's TransformerConfig values, scaled down to a model that is built in a second, and the names left out.

    Raises `UsageError` for what is no such file.
    """
    from megatron.core.transformer.transformer_config import TransformerConfig

    given = _load(file)
    if unknown := sorted(set(given) - {field.name for field in fields(TransformerConfig)}):
        raise UsageError(f"{file}: TransformerConfig has no {', '.join(unknown[:5])}.")
    left_out = sorted(name for name in given if any(part in name for part in _OURS))
    values = {name: value for name, value in given.items() if name not in left_out and value is not None}
    # The same proportions, smaller: head groups, the width of the MLP, tied or not, MTP.
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
    return small, left_out


def _load(file: Path) -> dict[str, Any]:
    try:
        text = reading.read(file).decode()
        if file.suffix == ".toml":
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
