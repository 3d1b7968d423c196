# golden: unsafe
from megatron.core.timers import Timers


def _totals(self, names, *, digits=3):
    return {name: round(len(name) / (self._log_level + 1), digits) for name in names}


def report(timers: Timers):
    first = _totals(timers, ["a"])
    second = _totals(
        timers or None,
        ["a", "b"],  # both
        digits=6,
    )
    return first, second


def make_timers():
    return Timers(2, "all")
