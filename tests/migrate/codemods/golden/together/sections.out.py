"""Sections as isort keeps them; veRL's and NeMo RL's packages are those of somebody else."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward
except ImportError:
    from aaa_plugins.verl.models.mcore.model_forward_fused import patch_fused_forward

from nemo_rl.distributed.model_utils import (
    distributed_vocab_topk,
)

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.nemo_rl import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )
except ImportError:
    from nemo_rl.distributed.model_utils import (
        patch_gpt_model_forward_for_linear_ce_fusion,
    )

from omegaconf import DictConfig

from .config import load


def setup(model: Any, config: DictConfig):
    patch_fused_forward(model)
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=config.chunk_size)
    return distributed_vocab_topk, load, np, os
