"""Routers start with small weights; the method comes from their base class."""

from megatron.core.transformer.moe.router import TopKRouter

_reset = TopKRouter.reset_parameters


def reset_parameters(self):
    _reset(self)
    self.weight.data.mul_(0.1)


TopKRouter.reset_parameters = reset_parameters
