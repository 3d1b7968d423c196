"""Sampling parameters travel with our own version number."""

from megatron.core.inference.sampling_params import SamplingParams

_serializable = SamplingParams.serializable


def serializable(self):
    return {**_serializable(self), "version": 2}


SamplingParams.serializable = serializable
