"""MTP can be switched off by the environment."""

import os

from megatron.core.models.gpt import gpt_model
from megatron.core.transformer.multi_token_prediction import mtp_on_this_rank


def wanted_here(*args, **kwargs):
    if os.environ.get("NO_MTP"):
        return False
    config = kwargs.pop("config", None) or (args[0] if args else None)
    return mtp_on_this_rank(config, ignore_virtual=True)


gpt_model.mtp_on_this_rank = wanted_here
