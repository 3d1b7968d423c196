"""Column parallel layers say once whether their all-reduce overlaps."""

import logging

from megatron.core.tensor_parallel.layers import ColumnParallelLinear

logger = logging.getLogger(__name__)
_forward = ColumnParallelLinear.forward


def forward(self, input_, weight=None, runtime_gather_output=None, **kwargs):
    if self.config.async_tensor_model_parallel_allreduce and not self.sequence_parallel:
        logger.debug("the all-reduce of the input's gradient overlaps")
    return _forward(self, input_, weight, runtime_gather_output, **kwargs)


ColumnParallelLinear.forward = forward
