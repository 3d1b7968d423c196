import aiohttp
from mcore_unpatch.compat.nemo_rl import patch_gpt_model_forward_for_linear_ce_fusion
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
from megatron.core import parallel_state
import numpy


def setup(model):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=256)
    patch_postprocess(model)
    return aiohttp, numpy, parallel_state
