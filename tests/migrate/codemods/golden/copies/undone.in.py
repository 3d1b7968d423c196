# golden: unsafe
"""Put in place by one function and taken back by another."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def patch_forward(model: GPTModel):
    if not hasattr(model, "forward_backup"):
        model.forward_backup = model.forward
        model.forward = _entropy_forward.__get__(model, model.__class__)


def unpatch_forward(model: GPTModel):
    if hasattr(model, "forward_backup"):
        model.forward = model.forward_backup
        delattr(model, "forward_backup")


def _entropy_forward(
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
    logits, _ = self.output_layer(hidden_states)
    log_probs = logits.float().log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1).transpose(0, 1)
