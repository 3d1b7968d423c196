# golden: unsafe
"""The forward of one model, bound with __get__; the temperature is a parameter of its own."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def patch_forward(model: GPTModel):
    assert isinstance(model, GPTModel)
    model.forward = forward_with_log_probs.__get__(model, GPTModel)


def forward_with_log_probs(
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
    """Log-probs of the labels, [b, s]."""
    MEGATRON("forward", "before")
    if not self.post_process:
        return hidden_states

    # From here on it is ours.
    logits, _ = self.output_layer(hidden_states, runtime_gather_output=runtime_gather_output)
    log_probs = (logits.float() / temperature).log_softmax(-1).transpose(0, 1)
    return log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)  # [b, s]
