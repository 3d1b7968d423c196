"""What the analysis of one file may cost: steps that are counted, and how deep one question may lead."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from mcore_unpatch.scanner.sources.parsing import Unreadable

# Some seconds of work. The most that a file of the repositories we know takes is a hundredth of it.
STEPS = 3_000_000
# Names that lead to names, calls that return calls: what people write is far below this.
DEPTH = 100


class Exhausted(Unreadable):
    """A file whose analysis would take too long."""


class Effort:
    """Counts the work on one file, across all the modules that its names lead to."""

    __slots__ = ("cuts", "depth", "left", "passing")

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps
        self.depth = 0
        # Answers that lean on a question still open (a cycle) or on one that led too deep: they hold for the question
        # at hand alone, and are asked anew by the next one. `cuts` counts how often that happened.
        self.cuts = 0
        self.passing: dict[Hashable, Any] = {}

    @contextmanager
    def at_most(self, steps: int) -> Iterator[None]:
        """Work that is not worth more than some steps: `Exhausted` is raised there, and the file has the rest left."""
        kept = max(self.left - steps, 0)
        self.left -= kept
        try:
            yield
        finally:
            self.left = max(self.left, 0) + kept

    def spend(self, steps: int = 1) -> None:
        """Count some work; raises `Exhausted` where the file has had its share."""
        self.left -= steps
        if self.left < 0:
            raise Exhausted(f"takes more than {STEPS:,} steps to analyse; exclude generated files")
