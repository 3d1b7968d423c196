"""Limits of single tests and jobs, which grow with the load of the machine. The whole run has none.

A limit is in seconds of an idle machine. While more processes want to run than there are cores, a second counts for
less: what hangs is ended all the same, and what is only slow gets its time.
"""

import os
import time

LOOK = 5.0  # seconds between two looks at the load


def slowness() -> float:
    """How many processes want each core, but never less than one."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def patience(seconds: float) -> float:
    """What `seconds` of an idle machine are on this one, as loaded as it is now: for the `timeout` of a process."""
    return seconds * slowness()


class Countdown:
    """Seconds of an idle machine that are left."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def left(self) -> float:
        """To be asked every few seconds: what has passed since the last time is counted at the load of now."""
        now = time.monotonic()
        self._left = max(0.0, self._left - (now - self._seen) / slowness())
        self._seen = now
        return self._left

    def wait(self) -> float:
        """How long to wait before `left` is asked again."""
        return min(self._left, LOOK)
