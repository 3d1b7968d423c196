# golden: unsafe
"""A copy that has fallen behind: no padding mask, no packed sequences, and labels in another place."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def short_forward(
    *,
    hidden_states,
    output_layer,
    labels,
    compute_language_model_loss,
    **_,
):
    logits, _ = output_layer(hidden_states)
    return compute_language_model_loss(labels, logits)


def patch(model: GPTModel):
    attach(model, short_forward)
