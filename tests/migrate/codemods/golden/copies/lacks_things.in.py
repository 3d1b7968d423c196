# golden: unsafe
"""A copy that has fallen behind: no padding mask, no packed sequences, and labels in another place."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def short_forward(
    self, input_ids, position_ids, attention_mask, labels=None, inference_context=None, inference_params=None, **kwargs
):
    MEGATRON("forward", "before", without=(None, "decoder_input", "packed_seq_params", "padding_mask"))
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states)
    return self.compute_language_model_loss(labels, logits)


def patch(model: GPTModel):
    model.forward = short_forward.__get__(model)
