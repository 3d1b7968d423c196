# golden: unsafe
"""The end asks the model for more than the hook passes: it stays a method of the model."""

import types

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
):
    MEGATRON("forward", "before")
    if not self.post_process:
        return hidden_states
    if self.share_embeddings_and_output_weights:
        weight = self.shared_embedding_or_output_weight()
    else:
        weight = self.output_layer.weight
    logits = (hidden_states @ weight.t())[..., : self.vocab_size]
    return logits.logsumexp(-1).transpose(0, 1) if self.training else logits


def patch(model: GPTModel):
    model.forward = types.MethodType(_forward, model)
