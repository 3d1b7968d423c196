"""What is to become of a patch: the row of what the library offers that fits it, on the releases it is judged for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.effects.traits import Tells, Traits
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.interface import SymbolKind
from mcore_unpatch.patches.alive import alive
from mcore_unpatch.patches.records import Confidence, Patch, Spelling


class Fate(StrEnum):
    """What becomes of a patch."""

    MOVES = "moves"  # a codemod rewrites it
    GOES = "goes"  # it can be deleted
    BY_HAND = "by hand"  # in steps
    STAYS = "stays"  # there is no official way
    DONE = "done"  # the official way stands beside it


class Reason(StrEnum):
    """Why."""

    OFFICIAL_WAY = "official-way"
    NOT_NEEDED = "not-needed"  # the library does it by itself
    NEVER_RUNS = "never-runs"  # a condition keeps it off the judged releases
    FOR_OTHERS = "for-others"  # it runs on no release that is known
    MOVED = "moved"  # the library calls it elsewhere now
    GONE = "gone"  # nobody calls it any more
    LEFT_BEHIND = "left-behind"  # set in a module that no longer imports it
    NO_WAY = "no-way"
    NO_WAY_YET = "no-way-yet"  # a newer release has one
    UNKNOWN_CLASS = "unknown-class"


class Verdict(NamedTuple):
    """What becomes of a patch, why, and the row that says how; `name`: where what is gone is now."""

    fate: Fate
    reason: Reason
    row: str = ""
    name: str = ""


class Row(Protocol):
    """One thing that a library offers in place of patches."""

    name: str
    verdict: str
    seam: str
    traits: tuple[str, ...]
    anywhere: bool
    since: str

    def fits(self, names: Sequence[str], shape: str) -> bool: ...  # noqa: D102


_VERDICTS = {"keep": Fate.STAYS, "steps": Fate.BY_HAND, "delete": Fate.GOES}
_ON_HOOK = "hook"


class Verdicts:
    """Answers for the patches of one judge."""

    def __init__(self, judge: Judge, rows: Sequence[Row], tells: Tells, every: Sequence[Detailed]) -> None:
        self._judge, self._rows, self._tells, self._every = judge, rows, tells, every

    def of(self, patch: Patch, releases: Sequence[Detailed]) -> Verdict:
        """What becomes of a patch on some releases, oldest first."""
        case, guards = self._judge.cases[patch], self._judge.guards
        if all(one is False for one in alive(guards, patch, releases)):
            runs = any(one is not False for one in alive(guards, patch, self._every))
            return Verdict(Fate.GOES, Reason.NEVER_RUNS) if runs else Verdict(Fate.STAYS, Reason.FOR_OTHERS)
        gone = self._gone(case, releases)
        if gone is not None:
            return gone
        if case.is_of_nowhere:
            return Verdict(Fate.STAYS, Reason.FOR_OTHERS)
        row = self.row(case, releases)
        if row is None:
            return Verdict(Fate.STAYS, Reason.NO_WAY)
        if self._is_of_unknown_class(case, row):
            return Verdict(Fate.STAYS, Reason.UNKNOWN_CLASS, row.name)
        fate = _VERDICTS[row.verdict]
        if fate == Fate.STAYS:
            return Verdict(fate, Reason.NO_WAY, row.name)
        if row.since and not row.anywhere and any(one.is_before(row.since) for one in releases):
            return Verdict(Fate.STAYS, Reason.NO_WAY_YET, row.name)
        return Verdict(fate, Reason.NOT_NEEDED if fate == Fate.GOES else Reason.OFFICIAL_WAY, row.name)

    def _gone(self, case: Replaced, releases: Sequence[Detailed]) -> Verdict | None:
        """Of what no judged release has, though an older one had it."""
        name = case.attribute
        if case.adds or (name.startswith("__") and any(one.has(case.owner) for one in releases)):
            return None
        last = {release: release.last_with(case.target) for release in releases}
        kinds = {found.entry(case.target).letter for found in last.values() if found and found.entry(case.target)}  # type: ignore[union-attr]
        if not all(last.values()) or not kinds or self._is_kept(case):
            return None
        if kinds <= {"i"} and releases[-1].define(case.owner) is not None:
            is_used = case.patch.spelling == Spelling.SYS_MODULES
            return None if is_used else Verdict(Fate.BY_HAND, Reason.LEFT_BEHIND)
        if not kinds <= {"f", "c", "m"}:
            return None
        moved = self._judge.raising(releases[-1]).now(case.target)
        if moved:
            return Verdict(Fate.BY_HAND, Reason.MOVED, name=moved)
        if self._judge.is_used(case):
            return None
        constant = isinstance(case.function, ast.Lambda) and isinstance(case.function.body, ast.Constant)
        return Verdict(Fate.GOES if constant else Fate.BY_HAND, Reason.GONE)

    def _is_kept(self, case: Replaced) -> bool:
        """Whether the original is read too, which raises: that is no dead code."""
        return case.reaches_original

    def row(self, case: Replaced, releases: Sequence[Detailed]) -> Row | None:
        """The first row that fits a patch."""
        library = case.names.library
        symbol = library.symbol(case.target)
        is_whole = symbol is not None and symbol.kind == SymbolKind.MODULE
        classes = [one.rpartition(".")[2] for one in library.lineage(case.owner)]
        names = [*(f"{cls}.{case.attribute}" for cls in classes), ".".join(case.target.split(".")[-2:])]
        names += _as_written(case)
        traits = Traits(case, releases, self._tells)
        for row in self._rows if not is_whole else ():
            if row.fits(names, str(case.patch.spelling)) and all(map(traits.has, row.traits)):
                return row
        return None

    def _is_of_unknown_class(self, case: Replaced, row: Row) -> bool:
        """The row is for one class, and other classes have such a method; or the patch is for one call of an object."""
        of_one_call = case.patch.temporary and case.is_alone
        if row.seam == _ON_HOOK or "part" in row.traits:
            return False
        if case.patch.sure != Confidence.POSSIBLE:
            return of_one_call and case.patch.sure != Confidence.CERTAIN and "in-specs" in row.traits
        owners = case.names.library.owners(case.attribute)
        roots = [one for one in owners if not any(base in owners for base in case.names.library.lineage(one)[1:])]
        return of_one_call or roots != [case.owner]


def _as_written(case: Replaced) -> list[str]:
    """The name that a patch writes, by what it writes it to: `output_layer.forward`, `module.ALIAS`."""
    write = case.patch.write
    if write is None or not isinstance(write.name, str):
        return []
    modules = (one.name.rpartition(".")[2] for one in case.names.of(write.base) if one.kind == Kind.MODULE)
    held = case.held_as if case.is_alone else []
    return [f"{base}.{write.name}" for base in (*held, *modules)]
