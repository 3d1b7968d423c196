# golden: unsafe
"""Imports, checks and logs before the decoder may as well come behind it."""

import logging

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params

logger = logging.getLogger(__name__)


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
    temperature=1.0,
):
    from math import log2

    # Or everything is infinite.
    assert temperature > 0, "temperature"
    if labels is None:
        raise ValueError("labels are needed")
    batch, length = input_ids.shape
    MEGATRON("forward", "before")
    logger.debug("hidden states of %s sequences", batch)
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states)
    return (logits / temperature).view(length, batch, -1) * log2(length)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
