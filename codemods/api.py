"""Every name that the author of a codemod needs; docs/writing-a-codemod.md goes through them.

A plain rewrite takes eight: `Codemod`, `Rule`, `Example`, `Match`, `calls_of`, `Replace`, `AddImport` and
`check_examples`.
"""

from __future__ import annotations

from mcore_unpatch.codemods.changes import (
    AddArguments as AddArguments,
    AddParameters as AddParameters,
    Change as Change,
    Header as Header,
    Insert as Insert,
    Make as Make,
    Replace as Replace,
    Rewrite as Rewrite,
    Unwrap as Unwrap,
    above as above,
    below as below,
)
from mcore_unpatch.codemods.codemod import (
    AddImport as AddImport,
    Codemod as Codemod,
    Example as Example,
    Fix as Fix,
    Left as Left,
    Match as Match,
    Mends as Mends,
    Note as Note,
)
from mcore_unpatch.codemods.removal import remove as remove
from mcore_unpatch.codemods.seams.patch import Patch as Patch, find_patch as find_patch
from mcore_unpatch.codemods.syntax import calls_of as calls_of
from mcore_unpatch.editing.source import Source as Source
from mcore_unpatch.findings.rules import Rule as Rule


def check_examples(codemod: type[Codemod]) -> None:
    """Migrate every example of an installed codemod as `unpatch migrate` does; a failure shows the diff."""
    from mcore_unpatch.codemods import testing  # loads all that a migration needs, which no scan does

    testing.check_examples(codemod)
