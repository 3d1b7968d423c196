"""Tell the MTP loss what it can be told on this release."""

import inspect

from megatron.core.models.gpt import gpt_model

_process = gpt_model.process_mtp_loss
OURS = {"input_ids": None, "tp_group": None, "our_flag": True}


def process_mtp_loss(**kwargs):
    known = inspect.signature(_process).parameters
    for name, value in OURS.items():
        if name not in known:
            continue
        kwargs.setdefault(name, value)
    return _process(**kwargs)


gpt_model.process_mtp_loss = process_mtp_loss
