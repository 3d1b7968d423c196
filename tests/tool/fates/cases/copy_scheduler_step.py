"""The scheduler's step as 0.15 had it, with a hook for our logger."""

from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

listeners = []


def step(self, increment):
    self.num_steps += increment
    decay = self.get_wd()
    for group in self.optimizer.param_groups:
        group["lr"] = self.get_lr(group) * group.get("lr_mult", 1.0)
        group["weight_decay"] = decay * group.get("wd_mult", 1.0)
    for listener in listeners:
        listener(self.num_steps)


OptimizerParamScheduler.step = step
