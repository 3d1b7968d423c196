# golden: unsafe
"""Parameters of its own that have names of the hook's, that look like a field of the context, or that nobody reads."""

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
    output_weight=None,
    teacher_ids=None,
    calculate_entropy=False,
):
    MEGATRON("forward", "before")
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states, weight=output_weight)
    log_probs = logits.log_softmax(-1).transpose(0, 1)
    return log_probs if teacher_ids is None else log_probs.gather(-1, teacher_ids)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
