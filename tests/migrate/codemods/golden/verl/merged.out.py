import torch
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_get_embeddings
except ImportError:
    from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings


def run(model):
    patch_postprocess(model)
    patch_mtp_layer_get_embeddings(model)
    return torch.float32
