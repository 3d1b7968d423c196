# golden: unsafe
"""Every chunk is patched with a bound method; a mask and a factor travel with the call."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def masked_loss(
    *,
    hidden_states,
    output_layer,
    output_weight,
    labels,
    context,
    compute_language_model_loss,
    scale_logits,
    **_,
):
    response_mask = context.mask
    coefficient = context.extra.get("coefficient", 2.0)
    bias = context.extra["bias"]
    logits, _ = output_layer(hidden_states, weight=output_weight)
    loss = compute_language_model_loss(labels, scale_logits(logits))
    if response_mask is not None:
        loss = loss * response_mask
    return loss * coefficient + bias


def patch(chunks):
    for chunk in chunks:
        if isinstance(chunk, GPTModel):
            attach(
                chunk,
                masked_loss,
                legacy={
                    "response_mask": "mask",
                    "coefficient": "coefficient",
                    "bias": "bias",
                },
            )
