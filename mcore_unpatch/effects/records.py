"""What a release does to a patch or to a use, and what is to become of a patch: facts alone, no words for people."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What a release does."""

    # Something raises.
    MODULE_GONE = "module-gone"  # an import of a module that is not there
    IMPORT_GONE = "import-gone"  # an import of a name that is not there
    NAME_GONE = "name-gone"  # a name that is read and not there
    CALL_UNFIT = "call-unfit"  # a call of ours that the library does not take
    NOT_TAKEN = "not-taken"  # a call of the library's that the replacement does not take
    UNPACKED = "unpacked"  # another number of values than the caller unpacks
    # Something else happens, without an error.
    BEHIND = "behind"  # a copy without what upstream changed
    BODY_CHANGED = "body-changed"  # the replacement stands for a body that changed
    DROPPED = "dropped"  # `**rest` swallows what the library passes now
    VALUE_MOVED = "value-moved"  # a value by position means another parameter
    DEFAULT_CHANGED = "default-changed"  # what a call leaves out
    CONSTANT_CHANGED = "constant-changed"
    COUNT_UNKNOWN = "count-unknown"  # how many values are given now is not evident
    NEW = "new"  # the library has now what the repository adds
    CALLED_ELSEWHERE = "called-elsewhere"  # another name, or another caller, stands between
    CLASS_ASKED = "class-asked"  # the library asks for the class that is replaced
    BRANCH_TURNED = "branch-turned"  # a condition of ours on the release takes its other way
    STOPPED = "stopped"  # what was called is never called any more
    UNREAD = "unread"  # whether it fits cannot be told
    # Nothing happens.
    NEVER_RUNS = "never-runs"  # a condition keeps it off the release
    NEVER_CALLED = "never-called"  # nobody calls what it replaces, before either
    UPSTREAMED = "upstreamed"  # the release does all that the copy does
    NONE = "none"


RAISES = frozenset(
    {
        Outcome.MODULE_GONE,
        Outcome.IMPORT_GONE,
        Outcome.NAME_GONE,
        Outcome.CALL_UNFIT,
        Outcome.NOT_TAKEN,
        Outcome.UNPACKED,
    }
)
QUIET = frozenset({Outcome.NEVER_RUNS, Outcome.NEVER_CALLED, Outcome.UPSTREAMED, Outcome.NONE})


class When(StrEnum):
    """When code runs."""

    IMPORT = "import"
    INSTALL = "install"
    CALL = "call"


class Cause(NamedTuple):
    """What it is about: a name of the library's; who calls it, or where it went; parameters, values or counts."""

    name: str
    by: str = ""
    words: tuple[str, ...] = ()


class Place(NamedTuple):
    """Where it happens, and when."""

    path: str
    line: int
    when: When = When.CALL


@dataclass(frozen=True)
class Effect:
    """One thing that releases do to one patch or one use; `exception` where something raises."""

    kind: Outcome
    releases: tuple[str, ...]
    cause: Cause
    place: Place
    exception: str = ""

    @property
    def raises(self) -> bool:
        """Whether something raises."""
        return self.kind in RAISES

    @property
    def differs(self) -> bool:
        """Whether something else happens, without an error."""
        return self.kind not in RAISES and self.kind not in QUIET

    def is_same(self, other: Effect) -> bool:
        """Whether it is the same on other releases, though other parameters may be meant."""
        mine, others = (self.kind, self.cause.name, self.place), (other.kind, other.cause.name, other.place)
        return mine == others and self.exception == other.exception


def place_of(node: ast.AST, path: str, when: When = When.CALL) -> Place:
    """The place of a node."""
    return Place(path, int(getattr(node, "lineno", 0)), when)
