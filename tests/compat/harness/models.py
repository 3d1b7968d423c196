"""Tiny real Megatron models: what a test says about one, and how it is built on this rank.

A HybridModel is the GPTModel of the same case in other words: each of its layers is half of one, attention or MLP, so
there are twice as many. With the same weights (`equal_pair`) both give the same bits.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionBlock
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import (
    MoETransformerLayer,
    TransformerLayer,
    TransformerLayerSubmodules,
)

from harness.attention import CpuAttention, Norm
from harness.worlds import lay_out
from mcore_unpatch.compat import gpt_parameter_names


@dataclass(frozen=True)
class Case:
    """One model in one parallel world; the defaults are the plainest of each."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    sequence_parallel: bool = False
    tied: bool = False
    mtp: int = 0
    repeated: bool = False  # one MTP layer for all depths
    mup: bool = False
    dtype: torch.dtype = torch.float32
    head_dtype: torch.dtype | None = None
    query_groups: int = 4
    bias: bool = False
    recompute: bool | str = False  # True: whole layers; "selective": attention and MLP inside them
    hybrid: bool = False
    moe: bool = False
    packed: bool = False
    vocab: int = 48
    hidden: int = 16
    sequence: int = 16
    batch: int = 2

    @property
    def ranks(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    def __str__(self) -> str:
        """The differences from the plainest case: the name of the test."""
        plain = Case()
        words = []
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value != getattr(plain, name):
                words.append(name if value is True else f"{name}={str(value).removeprefix('torch.')}")
        return ",".join(words) or "plain"


def start_world(case: Case) -> None:
    """Lay out Megatron's process groups for `case` over the ranks of this job, in place of any other layout."""
    lay_out(tensor_model_parallel_size=case.tp, context_parallel_size=case.cp, pipeline_model_parallel_size=case.pp)
    model_parallel_cuda_manual_seed(7, force_reset_rng=True)


def build_config(case: Case) -> TransformerConfig:
    """The Megatron configuration of `case`, with everything that needs a GPU switched off."""
    moe: dict[str, Any] = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_aux_loss_coeff": 0.02}
    half = {torch.bfloat16: {"bf16": True}, torch.float16: {"fp16": True}}.get(case.dtype, {})
    recompute: dict[str, Any] = {"recompute_granularity": "full", "recompute_method": "uniform"}
    recompute |= {"recompute_num_layers": 1}
    if case.recompute == "selective":
        recompute = {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "mlp"]}
    return TransformerConfig(
        num_layers=4 if case.hybrid else 2,
        is_hybrid_model=case.hybrid,
        hidden_size=case.hidden,
        num_attention_heads=4,
        num_query_groups=case.query_groups,
        add_bias_linear=case.bias,
        params_dtype=case.dtype,
        pipeline_dtype=case.dtype,
        tensor_model_parallel_size=case.tp,
        context_parallel_size=case.cp,
        pipeline_model_parallel_size=case.pp,
        sequence_parallel=case.sequence_parallel,
        mtp_num_layers=case.mtp or None,
        mtp_loss_scaling_factor=0.3 if case.mtp else None,
        mtp_use_repeated_layer=case.repeated,
        use_mup=case.mup,
        mup_base_hidden_size=case.hidden // 2 if case.mup else None,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        batch_p2p_comm=False,
        **half,
        **(moe if case.moe else {}),
        **(recompute if case.recompute else {}),
    )


def build_model(case: Case) -> Any:
    """The real model of `case` on this rank, the same weights on every rank that shares them."""
    torch.manual_seed(99)
    config = build_config(case)
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    common = {
        "vocab_size": case.vocab,
        "max_sequence_length": 4 * case.sequence,
        "pre_process": first,
        "post_process": last,
        "share_embeddings_and_output_weights": case.tied,
        "position_embedding_type": "rope",
    }
    model = _hybrid(case, config, common) if case.hybrid else _gpt(case, config, common)
    if case.head_dtype is not None and last:
        model.output_layer.to(case.head_dtype)
    return model


def equal_pair(case: Case) -> tuple[Any, Any]:
    """The HybridModel and the GPTModel of `case`, with the same weights.

    Run the one with more layers, the HybridModel, first: Megatron's log of MoE losses has room for those of the first.
    """
    gpt, hybrid = (build_model(replace(case, hybrid=hybrid)) for hybrid in (False, True))
    weights = gpt.state_dict()
    hybrid.load_state_dict({name: weights[of_gpt] for name, of_gpt in gpt_parameter_names(hybrid).items()})
    return hybrid, gpt


def layer_spec(moe: bool = False) -> Any:
    spec = get_gpt_layer_local_spec(num_experts=4 if moe else None)
    spec.submodules.self_attention.submodules.core_attention = CpuAttention
    spec.submodules.input_layernorm = Norm
    spec.submodules.pre_mlp_layernorm = Norm
    return spec


def block_of(layers: int, moe: bool = False) -> TransformerBlockSubmodules:
    """What a GPTModel takes for its layers."""
    return TransformerBlockSubmodules(layer_specs=[layer_spec(moe) for _ in range(layers)], layer_norm=Norm)


def _gpt(case: Case, config: TransformerConfig, common: dict[str, Any]) -> Any:
    return GPTModel(
        config, block_of(config.num_layers // case.pp, case.moe), mtp_block_spec=_mtp_spec(case, config), **common
    )


def _hybrid(case: Case, config: TransformerConfig, common: dict[str, Any]) -> Any:
    layer = layer_spec(case.moe).submodules
    attention = TransformerLayerSubmodules(
        input_layernorm=Norm, self_attention=layer.self_attention, self_attn_bda=layer.self_attn_bda
    )
    mlp = TransformerLayerSubmodules(pre_mlp_layernorm=Norm, mlp=layer.mlp, mlp_bda=layer.mlp_bda)
    mtp = _mtp_spec(case, config)
    for one in mtp.layer_specs if mtp is not None else ():
        one.submodules.mtp_model_layer = None
    stack = HybridStackSubmodules(
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=attention),
        mlp_layer=ModuleSpec(module=MLPLayer, submodules=mlp),
        moe_layer=ModuleSpec(module=MoETransformerLayer, submodules=mlp),
        mtp_block_spec=mtp and ModuleSpec(module=MultiTokenPredictionBlock, submodules=mtp),
    )
    one = "*E" if case.moe else "*-"
    pattern = "/".join([one + one if case.pp == 1 else f"{one}|{one}", *[one] * case.mtp])
    spec = ModuleSpec(module=HybridStack, params={"post_layer_norm": False}, submodules=stack)
    model = HybridModel(config, spec, hybrid_layer_pattern=pattern, **common)
    if model.post_process:  # the stack's own norm is one of Transformer Engine
        model.decoder.post_layer_norm, model.decoder.final_norm = True, Norm(config, config.hidden_size)
    return model


def _mtp_spec(case: Case, config: TransformerConfig) -> Any:
    if not case.mtp:
        return None
    mtp = get_gpt_mtp_block_spec(config, layer_spec(case.moe), use_transformer_engine=False)
    for spec in mtp.layer_specs if mtp is not None else ():  # None: on another pipeline stage
        spec.submodules.enorm = spec.submodules.hnorm = spec.submodules.layer_norm = Norm
    return mtp


def batch_of(case: Case, seed: int = 0) -> dict[str, torch.Tensor]:
    """Token ids, positions, labels and loss mask of a padded batch, whole (not split over context ranks)."""
    generator = torch.Generator().manual_seed(5 + seed)
    shape = (case.batch, case.sequence)
    return {
        "input_ids": torch.randint(0, case.vocab, shape, generator=generator),
        "position_ids": torch.arange(case.sequence).expand(shape).contiguous(),
        "labels": torch.randint(0, case.vocab, shape, generator=generator),
        "loss_mask": (torch.rand(shape, generator=generator) > 0.3).float(),
    }
