"""Labels for MTP look two tokens ahead, in the module that defines the roll."""

from megatron.core.transformer import multi_token_prediction

_roll = multi_token_prediction.roll_tensor


def two_ahead(tensor, shifts=-1, dims=-1, cp_group=None, **kwargs):
    once, _ = _roll(tensor, shifts, dims, cp_group, **kwargs)
    return _roll(once, shifts, dims, cp_group, **kwargs)


def install():
    multi_token_prediction.roll_tensor = two_ahead
