"""Old code and its replacement side by side: an import asks at run time which of the two is there.

The shim is imported first; it raises ImportError where Megatron has no hook, or the package is not installed. Then the
old import is made, as it stands. All uses of one file of patches move together, or none: a model that carries an old
patch makes the shim raise. A patch in another file that would be in the way is bounded with them (`bound`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from mcore_unpatch.codemods.bounds import bound
from mcore_unpatch.codemods.changes import Asked, Insert, Make, Reason
from mcore_unpatch.codemods.shims.contract import Shim
from mcore_unpatch.codemods.shims.holds import Analysis
from mcore_unpatch.codemods.shims.places import Place
from mcore_unpatch.codemods.shims.sightings import listed
from mcore_unpatch.codemods.standing import HOOK, OF_ONE_MODEL
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import DONE, NO_PATCHES, USE, Finding
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import RELEASES, parse_version, show

_SINCE = "Megatron Core 0.18 and later: on its output_processor hook"
_ON_THE_HOOK = "on Megatron Core's output_processor hook"  # of a file that no older one can import
_TOGETHER = "the same replacement as in {}"
_IMPORTS = (ast.Import, ast.ImportFrom)


class SideBySide:
    """The move of one downstream's uses."""

    def __init__(self, known: Analysis, bench: Workbench, options: Options, findings: Sequence[Finding]) -> None:
        self.known, self.bench, self.options, self.findings = known, bench, options, findings
        self._at = {(one.path, one.line, one.rule): one for one in reversed(findings)}

    def decide(self) -> None:
        """Put the edits on the bench, what they take away, and why the rest stays."""
        by_file: dict[str, list[Place]] = {}
        for places in self.known.places.uses().values():
            for place in places:
                by_file.setdefault(place.where, []).append(place)
        for where, places in by_file.items():
            self._settle(where, places[0].shim, places)

    def _settle(self, where: str, shim: Shim, places: Sequence[Place]) -> None:
        """All uses of the patches of one file, together or not at all."""
        ours = [place for place in places if self._is_open(place)]
        if not ours:
            return
        in_the_way = self._in_the_way(where)
        bounds = {one: bound(self.bench.repository, one) for one in in_the_way if self.options.wants(one.rule)}
        missing = [one for one in in_the_way if not bounds.get(one)]
        left = Left(Refusal.BELOW, f"{missing[0].path}:{missing[0].line}") if missing else self._why_not(places)
        rules = sorted({place.flow[1] for place in places})
        holds = [hold for rule in rules for hold in self.known.holds.get((where, rule), ())]
        # What somebody changed, or stands on the hook already, is theirs: it goes only where its rules are named too.
        named = self.options.unsafe_fixes and all(map(self.options.selection.names, rules))
        if left is None:
            left = next((hold.left for hold in holds if hold.final or not named), None)
        if left is not None:
            lines = {(place.path, place.line) for place in ours}
            mine = [one for one in self.findings if (one.path, one.line) in lines and one.shape == USE]
            self.bench.left |= dict.fromkeys([*mine, *(one for one in self.findings if one.path == where)], left)
            return
        definition = self.known.places.definitions.get(where)
        data = definition.source.data if definition else b""
        notes = tuple(said for word, said in shim.differs if word in data)
        level = "behaviour" if holds or notes else shim.level
        if not self.options.applies(level):
            return
        asked = list(self._guards(ours, Reason(rules[0], level, "", notes, group=where)))
        for changes in bounds.values():
            asked += [replace(one, reason=replace(one.reason, group=where)) for one in changes]
        self.bench.asked += asked
        if shim.recipe:
            package = definition.package if definition else self.known.places.contract.package
            self.bench.recipes.append(shim.recipe.replace("{path}", where).replace("{package}", package))
        lines_of_rules = {(place.path, place.line, place.flow[1]) for place in ours}
        for one in self.findings:
            used = one.shape == USE and (one.path, one.line, one.rule) in lines_of_rules
            # What is passed for the patch to read, which the shim reads too; what goes where its users leave.
            passed = one.rule in shim.names.values() and "." not in one.target
            if used or passed or one in in_the_way or (one.path == where and one.verdict != DONE):
                self.bench.removes.append(one)

    def _guards(self, places: Sequence[Place], reason: Reason) -> Iterator[Asked]:
        """The imports under their guards."""
        first, _ = Counter(place.path for place in places).most_common(1)[0]  # the others move with it
        for path in dict.fromkeys(place.path for place in places):
            source = self.bench.repository.source(path)
            here = [place for place in places if place.path == path]
            for line, column in dict.fromkeys((place.line, place.node.col_offset) for place in here):
                node = source.starting[line, column]
                assert isinstance(node, ast.ImportFrom)
                names = {place.name: place for place in here if place.line == line}
                shim = here[0].shim
                what = listed([*names]) if len(names) == 1 else f"{len(names)} names"
                says = _ON_THE_HOOK if self.options.floor(path) >= HOOK_SINCE else _SINCE
                title = f"side by side: {what} of the shim, else as before"
                if path != first:
                    says = _TOGETHER.format(first.rpartition("/")[2])
                    title = f"{title}; {says}"
                rule, gain = min(shim.names[name] for name in names), self._gain(shim, path)
                why = replace(reason, rule=rule, title=title, finding_line=line, gain=gain)
                yield Asked(source, guarded(source, node, shim.compat, frozenset(names), says), why)

    def _gain(self, shim: Shim, path: str) -> str:
        """What a maintainer has of the move, on the Megatrons in use."""
        live = self.options.live(path)
        gain = shim.gain_on(live)
        hit = [show(one) for one in live if gain and gain.since <= one < gain.until]
        return gain.text.format(" and ".join(hit)) if gain else ""

    def _finding(self, place: Place) -> Finding | None:
        return self._at.get((place.path, place.line, place.flow[1]))

    def _is_open(self, place: Place) -> bool:
        finding = self._finding(place)
        return finding is not None and finding.verdict != DONE and self.options.wants(finding.rule)

    def _why_not(self, places: Sequence[Place]) -> Left | None:
        """Why all of them stay; None where nothing is in the way."""
        for place in places:
            at, finding = f"{place.path}:{place.line}", self._finding(place)
            if finding is None or not self.options.wants(finding.rule):
                return Left(Refusal.NOT_SELECTED, at)
            source = self.bench.repository.source(place.path)
            statement = source.starting.get((place.line, place.node.col_offset))
            named = [alias.name for alias in getattr(statement, "names", ())]
            whole = isinstance(statement, ast.ImportFrom) and source.owns_lines(statement) and place.name in named
            if finding.verdict != DONE and isinstance(place.node, ast.ImportFrom) and not whole:
                return Left(Refusal.FORM, at)
        return None

    def _in_the_way(self, where: str) -> list[Finding]:
        """Patches of every model elsewhere that the shim would meet, and refuse."""
        known = [*self.known.places.definitions, where]
        others = (one for one in self.findings if one.path not in known and not one.in_test and one.verdict != DONE)
        carriers = (one for one in others if tuple(one.target.rpartition(".")[::2]) in HOOK and one.target)
        hooked = [parse_version(release) for release in RELEASES if parse_version(release) >= HOOK_SINCE]
        apart = {*OF_ONE_MODEL, "mock", "patch-file", *NO_PATCHES}
        return [one for one in carriers if one.shape not in apart and any(map(one.live.on, hooked))]


def guarded(source: Source, node: ast.ImportFrom, module: str, names: Collection[str], says: str) -> Make:
    """`try` some names of an import from another module; the statement as it stands, where that is not there.

    Names that the other module does not have are imported before. In a line that would be too long they stand in rows.
    """
    indent, step = source.indentation(node), source.step

    def line(statement: Any, keeps: Collection[str], indent: str, **changes: Any) -> Any:
        import libcst as cst

        from mcore_unpatch.codemods.imports.statement import keeping

        kept = keeping(statement.with_changes(**changes), keeps, source.width - len(indent))
        return cst.SimpleStatementLine([kept])

    def make(statement: Any) -> Any:
        import libcst as cst

        comment = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(f"# {says}"))
        new = line(statement, names, indent + step, module=cst.parse_expression(module), relative=())
        handler = cst.ExceptHandler(cst.IndentedBlock([line(statement, names, indent + step)]), cst.Name("ImportError"))
        guard = cst.Try(cst.IndentedBlock([new], header=comment), [handler])
        others = {alias.evaluated_name for alias in statement.names} - {*names}
        before = [line(statement, others, indent)] if others else []
        apart: list[Any] = [cst.EmptyLine()] if before and not indent else []
        return cst.Module([*before, *apart, guard], default_indent=step)

    return Make(node, make)


def set_apart(asked: Sequence[Asked]) -> Iterator[Asked]:
    """Blank lines between imports and those of them that are guarded from now on, as formatters want it."""
    guards = {one.change.node: one for one in asked if isinstance(one.change, Make)}
    for node, of in guards.items():
        suite = of.source.suite(node)
        index = suite.index(node)
        for first, second in pairwise(suite[max(index - 1, 0) : index + 2]):
            line = of.source.first_with_comments(second)
            both = isinstance(first, _IMPORTS) and isinstance(second, _IMPORTS)
            twice = second is node and first in guards  # which asked for it
            if both and not twice and not of.source.is_blank(line - 1):
                yield Asked(of.source, Insert(second, line, ""), of.reason)
