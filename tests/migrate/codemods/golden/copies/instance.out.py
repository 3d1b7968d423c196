# golden: unsafe
"""The forward of one model, bound with __get__; the temperature is a parameter of its own."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def patch_forward(model: GPTModel):
    assert isinstance(model, GPTModel)
    attach(model, forward_with_log_probs, legacy={"temperature": "temperature"})


def forward_with_log_probs(
    *,
    hidden_states,
    output_layer,
    labels,
    runtime_gather_output,
    context,
    **_,
):
    """Log-probs of the labels, [b, s]."""
    temperature = 1.0 if context.temperature is None else context.temperature
    # From here on it is ours.
    logits, _ = output_layer(hidden_states, runtime_gather_output=runtime_gather_output)
    log_probs = (logits.float() / temperature).log_softmax(-1).transpose(0, 1)
    return log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)  # [b, s]
