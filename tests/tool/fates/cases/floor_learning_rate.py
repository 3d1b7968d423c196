"""No parameter group learns slower than the floor of the experiment."""

from megatron.core import optimizer

FLOOR = 1e-7


def install():
    update = optimizer._update_min_and_max_lr_in_param_groups

    def update_with_floor(param_groups, lr, min_lr, decoupled_lr, decoupled_min_lr):
        return update(param_groups, lr, max(min_lr, FLOOR), decoupled_lr, decoupled_min_lr)

    optimizer._update_min_and_max_lr_in_param_groups = update_with_floor
