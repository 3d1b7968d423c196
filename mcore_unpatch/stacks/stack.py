"""One Megatron that a repository runs, and those that a file is judged for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.megatron.versions import NEWEST, Version, show
from mcore_unpatch.stacks.revision import Revision
from mcore_unpatch.stacks.said import Said

_SHOWN = 4  # stacks in one line


@dataclass(frozen=True, slots=True)
class Stack:
    """One Megatron that a repository runs, and every place where that is said."""

    revision: Revision
    said: tuple[Said, ...] = ()
    why: str = ""  # where no file says it

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.revision.name

    @property
    def versions(self) -> tuple[Version, ...]:
        """The releases to judge for."""
        return self.revision.versions

    @property
    def needed(self) -> tuple[Version, ...]:
        """The releases on which an edit must work: of a range the newest, which is the one that pip installs."""
        return self.versions[-1:] if self.revision.is_range else self.versions

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that the places name."""
        return tuple(sorted({said.platform for said in self.said if said.platform}))

    @property
    def certainty(self) -> str:
        """How sure it is that this is what runs."""
        if not self.versions:
            return "not known"
        return "certain" if self.revision.certain else "likely"

    @property
    def place(self) -> str:
        """Where it is said first, and how often else."""
        more = f" and {len(self.said) - 1} more" if len(self.said) > 1 else ""
        return f"{self.said[0].place}{more}" if self.said else self.why

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"

    def goes_by(self, name: str) -> bool:
        """Whether a user means this one: by its name, its release, its platform, or a file that names it."""
        commit = len(name) >= 7 and (self.name.startswith(name) or name.startswith(self.name))
        release = any(f"{show(version)}.".startswith(f"{name}.") for version in self.versions)
        return name in {self.name, *self.platforms, *(said.path for said in self.said)} or commit or release

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "is": self.revision.words,
            "releases": list(self.revision.releases),
            "certainty": self.certainty,
            "platforms": list(self.platforms),
            "settle": self.revision.settle,
            "why": self.why,
            "said": [
                {"path": one.path, "line": one.line, "kind": one.source, "platform": one.platform} for one in self.said
            ],
        }


@dataclass(frozen=True, slots=True)
class Judged:
    """The stacks that patches of a file are judged for."""

    stacks: tuple[Stack, ...]

    @property
    def versions(self) -> tuple[Version, ...]:
        """The releases, ascending; the newest where no stack is known."""
        return tuple(sorted({version for stack in self.stacks for version in stack.versions})) or (NEWEST,)

    @property
    def why(self) -> str:
        """Where the stacks are said."""
        return " and ".join(dict.fromkeys(stack.place for stack in self.stacks))

    def __str__(self) -> str:
        return summary(self.stacks)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        named = [stack.name for stack in self.stacks]
        return {"releases": [show(version) for version in self.versions], "why": self.why, "stacks": named}


def summary(stacks: Sequence[Stack]) -> str:
    """The line of every report: which Megatrons, from where."""
    if len(stacks) == 1:
        return f"Judged for megatron-core {stacks[0].name}: {stacks[0].place}{_unless_known(stacks[0])}."
    known = any(stack.versions for stack in stacks)
    shown = [f"{stack.name} ({stack.place}{_unless_known(stack, known)})" for stack in stacks[:_SHOWN]]
    more = len(stacks) - _SHOWN
    rest = f" and {more} more, which `unpatch stacks` lists" if more > 0 else ""
    return f"Judged for megatron-core {', '.join(shown)}{rest}."


def _unless_known(stack: Stack, others: bool = False) -> str:
    instead = "not judged for" if others else f"judged as {show(NEWEST)}"
    return "" if stack.versions else f"; {stack.revision.words}, {instead}"
