# golden: path=fork/models/mcore/mtp_patch.py unsafe select=MCU
"""MTP for our fork."""

import copy
import warnings

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import unwrap_model

# ---- ours ----
SCALE = 0.3


def scaled(config):
    """Ours: stays."""
    config = copy.copy(config)
    config.mtp_loss_scaling_factor *= SCALE
    return config


def _inner(model):
    return unwrap_model(model)


# replaces the loss
def patch_postprocess(model: GPTModel):
    warnings.warn("patched", stacklevel=2)
    model = _inner(model)
    model._postprocess = _our_postprocess.__get__(model, model.__class__)


def _our_postprocess(self, hidden_states, labels, **kwargs):
    mtp_loss = self.mtp(hidden_states, labels)
    return hidden_states + torch.zeros(1) * mtp_loss


def chunks(model):
    return _inner(model).decoder
