"""Labels for MTP look two tokens ahead, in the model's module."""

from megatron.core.models.gpt import gpt_model
from megatron.core.transformer.multi_token_prediction import roll_tensor


def two_ahead(tensor, shifts=-1, dims=-1, cp_group=None, **kwargs):
    once, _ = roll_tensor(tensor, shifts, dims, cp_group, **kwargs)
    return roll_tensor(once, shifts, dims, cp_group, **kwargs)


gpt_model.roll_tensor = two_ahead
