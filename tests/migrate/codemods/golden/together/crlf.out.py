import torch
from mcore_unpatch.compat.nemo_rl import (
    linear_ce_fusion_kwargs,
    patch_gpt_model_forward_for_linear_ce_fusion,
)
# the MTP loss
from mcore_unpatch.compat.verl.mtp_patch import (
    patch_postprocess,  # before the engine
)

patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
torch.manual_seed(0)


def run(model, ids, kwargs):
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return patch_postprocess(model), model(ids, **kwargs)