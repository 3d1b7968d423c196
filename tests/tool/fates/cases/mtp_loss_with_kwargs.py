"""Our own loss of the MTP layers: the same without Megatron's logging."""

import torch
from megatron.core.models.gpt import gpt_model
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, roll_tensor


def process_mtp_loss(hidden_states, labels, output_layer, output_weight, config, **kwargs):
    states, *ahead = hidden_states.chunk(1 + config.mtp_num_layers, dim=0)
    if labels is None:
        return states
    mask = torch.ones_like(labels) if kwargs["loss_mask"] is None else kwargs["loss_mask"]
    for layer in ahead:
        logits, _ = output_layer(layer, weight=output_weight)
        labels, _ = roll_tensor(labels, shifts=-1, dims=-1)
        mask, tokens = roll_tensor(mask, shifts=-1, dims=-1)
        loss = mask * kwargs["compute_language_model_loss"](labels, logits)
        scale = config.mtp_loss_scaling_factor / config.mtp_num_layers / tokens.clamp(min=1)
        states = MTPLossAutoScaler.apply(states, scale * loss)
    return states


gpt_model.process_mtp_loss = process_mtp_loss
