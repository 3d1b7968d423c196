"""Weights of column parallel layers start at a tenth."""

from megatron.core.tensor_parallel.layers import ColumnParallelLinear

_init = ColumnParallelLinear.__init__


def construct(self, *args, **kwargs):
    _init(self, *args, **kwargs)
    if self.weight is not None:
        self.weight.data.mul_(0.1)


ColumnParallelLinear.__init__ = construct
