# golden: unsafe
"""The end of the forward alone; MTP is Megatron's, and the logits are capped."""

import torch
from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel

CAP = 2.0


def _capped(
    *,
    hidden_states,
    output_layer,
    output_weight,
    labels,
    runtime_gather_output,
    compute_language_model_loss,
    scale_logits,
    **_,
):
    logits, _ = output_layer(
        hidden_states, weight=output_weight, runtime_gather_output=runtime_gather_output
    )
    logits = CAP * torch.tanh(scale_logits(logits) / CAP)
    if labels is None:
        return logits.transpose(0, 1).contiguous()
    return compute_language_model_loss(labels, logits)


def patch_postprocess(model: GPTModel):
    attach(model, _capped)
