import os

from nemo_rl.distributed.model_utils import (
    distributed_vocab_topk,
    patch_gpt_model_forward_for_linear_ce_fusion,
)


def setup(config):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=config["chunk_size"])
    return distributed_vocab_topk, os.environ
