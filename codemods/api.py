"""Every name that the author of a codemod needs; docs/writing-a-codemod.md goes through them.

A plain rewrite takes eight: `Codemod`, `Rule`, `Example`, `Match`, `calls_of`, `Replace`, `AddImport` and
`check_examples`.
"""

from __future__ import annotations

from mcore_unpatch.codemods.changes import (
    AddParameters,
    Argument,
    Change,
    Header,
    Insert,
    Make,
    Replace,
    Rewrite,
    Unwrap,
    above,
    below,
)
from mcore_unpatch.codemods.codemod import (
    AddImport,
    ByHand,
    Codemod,
    Elsewhere,
    Example,
    Fix,
    Left,
    Match,
    MoveImport,
    Note,
    Settles,
)
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.patch import Patch, find_patch
from mcore_unpatch.codemods.syntax import calls_of
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.rules import Rule

__all__ = [
    "AddImport",
    "AddParameters",
    "Argument",
    "ByHand",
    "Change",
    "Codemod",
    "Elsewhere",
    "Example",
    "Fix",
    "Header",
    "Insert",
    "Left",
    "Make",
    "Match",
    "MoveImport",
    "Note",
    "Patch",
    "Replace",
    "Rewrite",
    "Rule",
    "Settles",
    "Source",
    "Unwrap",
    "above",
    "below",
    "calls_of",
    "check_examples",
    "find_patch",
    "remove",
]


def check_examples(codemod: type[Codemod]) -> None:
    """Migrate every example of an installed codemod as `unpatch migrate` does; a failure shows the diff."""
    from mcore_unpatch.codemods import testing  # loads all that a migration needs, which no scan does

    testing.check_examples(codemod)
