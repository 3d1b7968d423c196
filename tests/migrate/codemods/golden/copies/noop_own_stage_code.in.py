# golden: unsafe
"""Something of its own runs on every stage."""

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
    MEGATRON("forward", "before")
    hidden_states = hidden_states.clone()
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states)
    return logits.float().log_softmax(-1).transpose(0, 1)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
