import aiohttp
from megatron.core import parallel_state
from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion
import numpy
from verl.models.mcore.mtp_patch import patch_postprocess


def setup(model):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
    patch_postprocess(model)
    return aiohttp, numpy, parallel_state
