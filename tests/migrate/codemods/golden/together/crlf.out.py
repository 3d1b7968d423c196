import torch

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.nemo_rl import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )
except ImportError:
    from nemo_rl.distributed.model_utils import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )

# the MTP loss
try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import (
        patch_postprocess,  # before the engine
    )
except ImportError:
    from verl.models.mcore.mtp_patch import (
        patch_postprocess,  # before the engine
    )

patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
torch.manual_seed(0)


def run(model, ids, kwargs):
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return patch_postprocess(model), model(ids, **kwargs)