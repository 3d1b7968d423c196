# golden: unsafe
"""Every chunk is patched with a bound method; a mask and a factor travel with the call."""

import types

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def masked_loss(
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
    response_mask=None,
    coefficient=2.0,
    bias,
):
    MEGATRON("forward", "before")
    output_weight = None
    if self.share_embeddings_and_output_weights:
        output_weight = self.shared_embedding_or_output_weight()
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states, weight=output_weight)
    loss = self.compute_language_model_loss(labels, self._scale_logits(logits))
    if response_mask is not None:
        loss = loss * response_mask
    return loss * coefficient + bias


def patch(chunks):
    for chunk in chunks:
        if isinstance(chunk, GPTModel):
            chunk.forward = types.MethodType(masked_loss, chunk)
