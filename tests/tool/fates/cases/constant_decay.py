"""Weight decay never changes."""

from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler


def get_wd(self):
    return self.end_wd


OptimizerParamScheduler.get_wd = get_wd
