"""The scale of the MTP loss is half of what the schedule says."""

from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

_set = MTPLossAutoScaler.set_loss_scale


def set_half_scale(scale):
    _set(scale / 2)


MTPLossAutoScaler.set_loss_scale = staticmethod(set_half_scale)
