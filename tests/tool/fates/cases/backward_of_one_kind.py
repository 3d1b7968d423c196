"""Refuse to go backward through models of a kind that we never tried."""

from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import schedules

_backward_step = schedules.backward_step


def backward_step(*args):
    if any(argument is ModelType.encoder_and_decoder for argument in args):
        raise NotImplementedError("encoder and decoder")
    return _backward_step(*args)


schedules.backward_step = backward_step
