"""A place that lists dependencies, in whichever format."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mcore_unpatch.errors import UsageError

_NAME_AND_EXTRAS = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\s*\[([^\]]*)\])?")
Span = tuple[int, int]


class Listing(ABC):
    """The requirements of one place in a file, in order, and where each stands."""

    def __init__(
        self, file: Path, text: str, requirements: Sequence[str], spans: Sequence[Span], is_main: bool
    ) -> None:
        self.file, self.text = file, text
        self.requirements, self.spans = list(requirements), list(spans)
        self.is_main = is_main  # every installation reads it, not only one with an extra

    @abstractmethod
    def meaning(self, text: str) -> tuple[list[str], object]:
        """The requirements that a text of this file lists in this place, and everything else it says."""

    @abstractmethod
    def _with_requirement(self, requirement: str) -> str:
        """The text with one requirement more."""

    def _with_extra(self, index: int, extra: str) -> str:
        """The text with an extra for one of the requirements."""
        start, end = self.spans[index]
        return self.text[:start] + plus_extra(self.text[start:end], extra) + self.text[end:]

    def find(self, package: re.Pattern[str]) -> str | None:
        """The requirement of a package."""
        return next((one for one in self.requirements if package.match(one)), None)

    def adding(self, requirement: str) -> str:
        """The text with one requirement more, and nothing else that means anything new."""
        return self._checked(self._with_requirement(requirement), [*self.requirements, requirement], requirement)

    def extending(self, requirement: str, extra: str) -> str:
        """The text with an extra for a requirement that is there, and nothing else that means anything new."""
        index = self.requirements.index(requirement)
        wanted = plus_extra(requirement, extra)
        new = [*self.requirements[:index], wanted, *self.requirements[index + 1 :]]
        return self._checked(self._with_extra(index, extra), new, wanted)

    def _checked(self, after: str, requirements: list[str], line: str) -> str:
        try:
            found, rest = self.meaning(after)
            fits = Counter(found) == Counter(requirements) and rest == self.meaning(self.text)[1]
        except (ValueError, SyntaxError, LookupError):
            fits = False
        if not fits:
            raise self.refusal(line)
        return after

    def refusal(self, line: str) -> UsageError:
        """What is said where the file cannot be written."""
        return UsageError(
            f"cannot add {line!r} to {self.file} without changing more; add it by hand and run without --add-dependency"
        )


def has_extra(requirement: str, extra: str) -> bool:
    """Whether a requirement asks for an extra."""
    match = _NAME_AND_EXTRAS.match(requirement)
    return match is not None and extra in [one.strip().lower() for one in (match[3] or "").split(",")]


def plus_extra(requirement: str, extra: str) -> str:
    """`name[extra]>=1` for `name>=1`: what else is asked for stays."""
    match = _NAME_AND_EXTRAS.match(requirement)
    assert match is not None
    if match[2] is None:
        return f"{match[1]}[{extra}]{requirement[match.end(1) :]}"
    separator = "," if (match[3] or "").strip() else ""
    return f"{requirement[: match.end(3)]}{separator}{extra}{requirement[match.end(3) :]}"
