import torch

from verl.models.mcore import model_forward_fused as mff


def run(model):
    mff.patch_fused_forward(model)
    return mff.fused_forward_model_gen(vision_model=False), torch.float32
