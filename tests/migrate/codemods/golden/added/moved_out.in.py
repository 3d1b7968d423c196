# golden: unsafe
import types

from megatron.core.timers import Timers


def make_timers():
    """Timers that count."""
    timers = Timers(0, "all")

    # How many there are.
    def number_of(self):
        return len(self._timers)

    timers.number_of_timers = types.MethodType(number_of, timers)
    timers("a", log_level=0)
    return timers


def report(timers):
    return timers.number_of_timers()
