import torch
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings


def run(model):
    patch_postprocess(model)
    patch_mtp_layer_get_embeddings(model)
    return torch.float32
