import torch

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
except ImportError:
    from verl.models.mcore.mtp_patch import patch_postprocess


def run(model):  # café
    return patch_postprocess(model), torch