"""A place that lists dependencies, in whichever format."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from mcore_unpatch.errors import UsageError

_NAME_AND_EXTRAS = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\s*\[([^\]]*)\])?")


class Listing:
    """The requirements of one place in a file, in order."""

    def __init__(self, file: Path, text: str, requirements: list[str], is_main: bool) -> None:
        self.file, self.text, self.requirements = file, text, requirements
        self.is_main = is_main  # every installation reads it, not only one with an extra

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The requirements that a text of this file lists in this place, and everything else it says."""
        raise NotImplementedError

    def with_requirement(self, requirement: str) -> str:
        """The text with one requirement more."""
        raise self.refusal(requirement)

    def with_extra(self, index: int, extra: str) -> str:
        """The text with an extra for one of the requirements."""
        raise self.refusal(plus_extra(self.requirements[index], extra))

    def find(self, package: re.Pattern[str]) -> str | None:
        """The requirement of a package."""
        return next((one for one in self.requirements if package.match(one)), None)

    def adding(self, requirement: str) -> str:
        """The text with one requirement more, and nothing else that means anything new."""
        return self._checked(self.with_requirement(requirement), [*self.requirements, requirement], requirement)

    def extending(self, requirement: str, extra: str) -> str:
        """The text with an extra for a requirement that is there, and nothing else that means anything new."""
        index, wanted = self.requirements.index(requirement), plus_extra(requirement, extra)
        new = [*self.requirements[:index], wanted, *self.requirements[index + 1 :]]
        return self._checked(self.with_extra(index, extra), new, wanted)

    def _checked(self, after: str, requirements: list[str], line: str) -> str:
        try:
            found, rest = self.meaning(after)
            fits = Counter(found) == Counter(requirements) and rest == self.meaning(self.text)[1]
        except (ValueError, LookupError):
            fits = False
        if not fits:
            raise self.refusal(line)
        return after

    def refusal(self, line: str) -> UsageError:
        """What is said where the file cannot be written."""
        return UsageError(
            f"cannot add {line!r} to {self.file} without changing more; add it by hand and run without --add-dependency"
        )


class ManualListing(Listing):
    """A setup.py or setup.cfg: what it lists is seen, and it is left to people."""

    def __init__(self, file: Path, text: str) -> None:
        quoted = re.findall(r"""(?m)(?:["']|^[ \t]+|=[ \t]*)([A-Za-z0-9][\w.-]*(?:\[[^\]\n]*\])?[^"'\n]*)""", text)
        super().__init__(file, text, quoted, True)

    def refusal(self, line: str) -> UsageError:
        """What is said in place of a change."""
        return UsageError(f"{self.file.name} is not edited; add {line!r} by hand and run without --add-dependency")


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
