import os

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


def setup(config):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=config["chunk_size"])
    return distributed_vocab_topk, os.environ
