# golden: unsafe
"""Put in place by one function and taken back by another."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def patch_forward(model: GPTModel):
    if not hasattr(model, "hook_handle"):
        model.hook_handle = attach(model, _entropy_forward)


def unpatch_forward(model: GPTModel):
    if hasattr(model, "hook_handle"):
        model.hook_handle.remove()
        delattr(model, "hook_handle")


def _entropy_forward(*, hidden_states, output_layer, **_):
    logits, _ = output_layer(hidden_states)
    log_probs = logits.float().log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1).transpose(0, 1)
