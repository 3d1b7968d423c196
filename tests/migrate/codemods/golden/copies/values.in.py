# golden: unsafe
"""The end has no head at all: the values come from a layer that the model was given."""

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
    return self.values(hidden_states).squeeze(-1).transpose(0, 1)


def patch(model: GPTModel):
    model.forward = types.MethodType(_forward, model)
