# golden: unsafe
from megatron.core.timers import Timers


# How many there are.
def number_of(self):
    return len(self._timers)


def make_timers():
    """Timers that count."""
    timers = Timers(0, "all")

    timers("a", log_level=0)
    return timers


def report(timers):
    return number_of(timers)
