"""The learning rate never falls below a floor."""

from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler


def _with_floor(get_lr):
    def floored(self, param_group):
        return max(get_lr(self, param_group), 1e-3)

    return floored


OptimizerParamScheduler.get_lr = _with_floor(OptimizerParamScheduler.get_lr)
