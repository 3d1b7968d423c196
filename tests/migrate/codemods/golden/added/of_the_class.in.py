# golden: unsafe
from megatron.core.timers import Timers


def _totals(self, names, *, digits=3):
    return {name: round(len(name) / (self._log_level + 1), digits) for name in names}


# Our loggers want numbers.
Timers.totals = _totals


def report(timers: Timers):
    first = timers.totals(["a"])
    second = (timers or None).totals(
        ["a", "b"],  # both
        digits=6,
    )
    return first, second


def make_timers():
    return Timers(2, "all")
