"""Gradients of parameters that we froze do not count in the norm."""

from functools import wraps

from megatron.core.optimizer.optimizer import MegatronOptimizer


def _without_frozen(collect):
    @wraps(collect)
    def wrapper(self):
        return [grad for grad in collect(self) if grad is not None and not getattr(grad, "frozen", False)]

    return wrapper


MegatronOptimizer.get_main_grads_for_grad_norm = _without_frozen(MegatronOptimizer.get_main_grads_for_grad_norm)
