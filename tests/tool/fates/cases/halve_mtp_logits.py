"""Halve the logits of the MTP layers before their loss."""

from megatron.core.models.gpt import gpt_model

_process_mtp_loss = gpt_model.process_mtp_loss


def process_mtp_loss(
    hidden_states,
    labels,
    loss_mask,
    output_layer,
    output_weight,
    runtime_gather_output,
    is_training,
    compute_language_model_loss,
    config,
    cp_group=None,
    packed_seq_params=None,
    scale_logits_fn=None,
    **more,
):
    def halved(logits):
        return logits / 2

    return _process_mtp_loss(
        hidden_states,
        labels,
        loss_mask,
        output_layer,
        output_weight,
        runtime_gather_output,
        is_training,
        compute_language_model_loss,
        config,
        cp_group,
        packed_seq_params,
        halved,
    )


gpt_model.process_mtp_loss = process_mtp_loss
