"""Tiny real models on one CPU rank, built alike on every release: a field that a release lacks is left out."""

import dataclasses
import inspect
import tempfile
from typing import Any

import torch

VOCAB, SEQUENCE, BATCH, HIDDEN = 32, 8, 2, 16


def start_world(ranks: int = 1, **layout: Any) -> None:
    """This rank with every process group of Megatron, beside others that exist in name only."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    if parallel_state.model_parallel_is_initialized():
        return
    stand_in_for_transformer_engine()
    if ranks == 1:
        meeting = tempfile.NamedTemporaryFile(delete=False).name  # noqa: SIM115 - the rank keeps it while it lives
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    parallel_state.initialize_model_parallel(**layout, create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(7)


def stand_in_for_transformer_engine() -> None:
    """Where a release names Transformer Engine without asking whether it is there: no kernel, a class of nothing."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    if not isinstance(getattr(multi_latent_attention, "TELinear", object), type):
        multi_latent_attention.TELinear = type("TELinear", (), {})


def keep_known(function: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The keywords among `values` that `function` has on this release."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in values.items() if name in known}


def config_of(cls: Any = None, **changes: Any) -> Any:
    """A TransformerConfig (or `cls`) without anything that needs a GPU."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    cls = cls or TransformerConfig
    fields = {field.name for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": HIDDEN,
        "num_attention_heads": 4,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "add_bias_linear": False,
        "use_cpu_initialization": True,
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False,
        "bias_dropout_fusion": False,
        "bias_activation_fusion": False,
        "persist_layer_norm": False,
        "apply_rope_fusion": False,
        "batch_p2p_comm": False,
        "pipeline_dtype": torch.float32,
        "init_method_std": 0.3,
        "mtp_loss_scaling_factor": 0.1,
        **changes,
    }
    return cls(**{name: value for name, value in values.items() if name in fields})


def moe_config(**changes: Any) -> Any:
    """Four experts, two for each token, no streams of a GPU."""
    return config_of(
        **{
            "num_moe_experts": 4,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": 16,
            "moe_token_dispatcher_type": "allgather",
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": 0.1,
            **changes,
        }
    )


def mla_config(**changes: Any) -> Any:
    """Multi-latent attention."""
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    ranks = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8}
    return config_of(
        MLATransformerConfig,
        **{"multi_latent_attention": True, "rope_type": "rope", "rotary_scaling_factor": 1.0, **ranks, **changes},
    )


class PlainAttention(torch.nn.Module):
    """Causal attention whose values may be narrower than its keys: Megatron's own needs Transformer Engine for that."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        """`[s, b, heads, d]` to `[s, b, heads * d]`."""
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.permute(2, 0, 1, 3).flatten(2)


def layer_spec(config: Any) -> Any:
    """The layer without Transformer Engine."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, multi_latent_attention=config.multi_latent_attention
    )
    if config.multi_latent_attention:
        spec.submodules.self_attention.submodules.core_attention = PlainAttention
    return spec


def gpt(config: Any = None, **more: Any) -> Any:
    """A GPTModel with random weights that are the same each time."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    start_world()
    config = config or config_of()
    spec = layer_spec(config)
    if config.mtp_num_layers:
        more["mtp_block_spec"] = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)
    torch.manual_seed(3)
    return GPTModel(
        config, spec, vocab_size=VOCAB, max_sequence_length=SEQUENCE, position_embedding_type="rope", **more
    )


def batch() -> dict[str, Any]:
    """Token ids, positions, mask and labels."""
    generator = torch.Generator().manual_seed(5)
    shape = (BATCH, SEQUENCE)
    return {
        "input_ids": torch.randint(0, VOCAB, shape, generator=generator),
        "position_ids": torch.arange(SEQUENCE).expand(shape).contiguous(),
        "attention_mask": torch.ones(1, 1, SEQUENCE, SEQUENCE).tril() < 0.5,
        "labels": torch.randint(0, VOCAB, shape, generator=generator),
    }


def loss_of(model: Any) -> torch.Tensor:
    """The loss of each token, with the whole of Megatron's forward behind it."""
    result: torch.Tensor = model(**batch())
    return result.detach()


def gradients_of(model: Any) -> list[torch.Tensor]:
    """The loss of each token and every gradient of one step, in the order of the parameters."""
    loss = model(**batch())
    loss.sum().backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
