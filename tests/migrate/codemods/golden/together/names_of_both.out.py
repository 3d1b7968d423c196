import torch
from megatron.core.models.gpt import GPTModel

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.nemo_rl import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )
except ImportError:
    from nemo_rl.distributed.model_utils import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
except ImportError:
    from verl.models.mcore.mtp_patch import patch_postprocess


def setup(model: GPTModel, ids: torch.Tensor, kwargs):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
    patch_postprocess(model)
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(ids, labels=ids, **kwargs)
