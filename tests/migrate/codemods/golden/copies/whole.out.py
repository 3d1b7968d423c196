# golden: unsafe
"""All of a release, `_postprocess` written into the forward, with the call of the hook; MTP is for labels alone."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(
    *,
    hidden_states,
    output_layer,
    output_weight,
    labels,
    runtime_gather_output,
    context,
    compute_language_model_loss,
    scale_logits,
    **_,
):
    temperature = 1.0 if context.temperature is None else context.temperature
    logits, _ = output_layer(hidden_states, weight=output_weight, runtime_gather_output=runtime_gather_output)
    logits = scale_logits(logits) / temperature
    return compute_language_model_loss(labels, logits)


def patch(model: GPTModel):
    attach(model, _forward, legacy={"temperature": "temperature"})
