# golden: unsafe
"""The embeddings get noise: the hook comes too late for that."""

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def _forward(
    self,
    input_ids,
    position_ids,
    attention_mask,
    decoder_input=None,
    labels=None,
    inference_context=None,
    packed_seq_params=None,
    extra_block_kwargs=None,
    runtime_gather_output=None,
    *,
    inference_params=None,
    loss_mask=None,
    padding_mask=None,
    **kwargs,
):
    decoder_input = self.embedding(input_ids=input_ids, position_ids=position_ids)
    decoder_input = decoder_input + torch.randn_like(decoder_input)
    MEGATRON("forward", "before")
    logits, _ = self.output_layer(hidden_states)
    return logits.float().log_softmax(-1).transpose(0, 1)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
