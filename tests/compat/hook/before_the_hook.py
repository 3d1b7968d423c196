"""Run by itself with a megatron-core from before the hook: what needs none does there what it does elsewhere."""

import tempfile
from typing import Any

import torch
from harness.attention import CpuAttention, Norm
from harness.cpu import on_the_cpu
from megatron.core import __version__, parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from mcore_unpatch.compat import add_value_head, detach_mtp_inputs, find_language_model, fp32_logits, resolve_groups

TOKENS = torch.arange(8)[None]
INPUTS: dict[str, Any] = {"input_ids": TOKENS, "position_ids": TOKENS, "attention_mask": None}


def _model(**options: Any) -> Any:
    config = TransformerConfig(
        num_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        persist_layer_norm=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        apply_rope_fusion=False,
        **options,
    )
    layer = get_gpt_layer_local_spec()
    layer.submodules.self_attention.submodules.core_attention = CpuAttention
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    block, mtp = TransformerBlockSubmodules(layer_specs=[layer], layer_norm=Norm), None
    if config.mtp_num_layers:
        mtp = get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False)
        for one in mtp.layer_specs:
            one.submodules.enorm = one.submodules.hnorm = one.submodules.layer_norm = Norm
    return GPTModel(
        config, block, vocab_size=32, max_sequence_length=16, position_embedding_type="rope", mtp_block_spec=mtp
    )


def _embedding_gradient(model: Any) -> torch.Tensor:
    """Of the MTP loss alone: the model's own loss counts nothing."""
    model.zero_grad()
    (model(**INPUTS, labels=TOKENS, loss_mask=torch.ones(1, 8)) * 0).sum().backward()
    return model.embedding.word_embeddings.weight.grad.abs().max()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, on_the_cpu():
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        parallel_state.get_data_parallel_group()

        critic = _model()
        add_value_head(critic)
        values = critic(**INPUTS)
        assert (values.shape, values.dtype) == ((1, 8, 1), torch.float32)
        values.sum().backward()
        assert critic.output_layer.weight.grad.abs().max() > 0

        half = _model(bf16=True, params_dtype=torch.bfloat16).bfloat16()
        assert half(**INPUTS).dtype == torch.bfloat16
        with fp32_logits(half):
            assert half(**INPUTS).dtype == torch.float32

        mtp = _model(mtp_num_layers=1, mtp_loss_scaling_factor=0.3)
        assert find_language_model(mtp).model is mtp
        assert resolve_groups(mtp).tp.size() == 1
        assert _embedding_gradient(mtp) > 0
        detach_mtp_inputs(mtp.mtp.layers[0])
        assert _embedding_gradient(mtp) == 0
        print(f"{__version__}: all work")
        torch.distributed.destroy_process_group()
