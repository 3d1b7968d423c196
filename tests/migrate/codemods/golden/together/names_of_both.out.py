import torch
from mcore_unpatch.compat.nemo_rl import (
    linear_ce_fusion_kwargs,
    patch_gpt_model_forward_for_linear_ce_fusion,
)
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
from megatron.core.models.gpt import GPTModel


def setup(model: GPTModel, ids: torch.Tensor, kwargs):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
    patch_postprocess(model)
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, labels=ids, **kwargs)
