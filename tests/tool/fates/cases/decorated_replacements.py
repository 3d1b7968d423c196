"""Functions that say themselves what they replace."""

import importlib

_REPLACEMENTS = {}


def replaces(dotted):
    def register(function):
        _REPLACEMENTS[dotted] = function
        return function

    return register


@replaces("megatron.core.optimizer_param_scheduler.OptimizerParamScheduler.get_wd")
def half_of_the_decay(self):
    return self.end_wd / 2


def install():
    for dotted, function in _REPLACEMENTS.items():
        module, owner, name = dotted.rsplit(".", 2)
        setattr(getattr(importlib.import_module(module), owner), name, function)
