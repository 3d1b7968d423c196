"""Every DistributedDataParallel reduces in float32, whatever it is told."""

from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

_init = DistributedDataParallel.__init__


def construct(self, config, ddp_config, module, *args, **kwargs):
    ours = DistributedDataParallelConfig(grad_reduce_in_fp32=True, preserve_fp32_weights=True)
    _init(self, config, ours, module, *args, **kwargs)


DistributedDataParallel.__init__ = construct
