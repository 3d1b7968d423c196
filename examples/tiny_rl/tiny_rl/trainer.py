"""The training loop: which patches are on depends on the model."""

from verl.models.mcore.model_forward_fused import fused_forward_model_gen, patch_fused_forward
from verl.models.mcore.mtp_patch import (
    patch_mtp_layer_get_embeddings,  # detach the encoder
    patch_postprocess,
)


def prepare(chunks, config):
    for chunk in chunks:
        if config.mtp:
            patch_postprocess(chunk)
            patch_mtp_layer_get_embeddings(chunk)
        elif config.fused_kernels:
            patch_fused_forward(chunk)


def log_probs(model, batch):
    forward = fused_forward_model_gen()
    return forward(model, batch.input_ids, batch.position_ids, batch.attention_mask, batch.labels, batch.labels_mask)
