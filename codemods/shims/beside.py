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

from mcore_unpatch.codemods.bounds import bounds
from mcore_unpatch.codemods.changes import Asked, Insert, Make, Reason
from mcore_unpatch.codemods.layout import step_of
from mcore_unpatch.codemods.shims import handing_over
from mcore_unpatch.codemods.shims.contract import Shim
from mcore_unpatch.codemods.shims.exports import ShimReference
from mcore_unpatch.codemods.shims.sightings import OFFER, Analysis, Blocker, flow_of, listed
from mcore_unpatch.codemods.standing import HOOK
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options, Remark
from mcore_unpatch.editing.source import Source, first_line
from mcore_unpatch.findings.finding import USE, Finding
from mcore_unpatch.findings.verdicts import DONE
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import RELEASES, parse_version, show
from mcore_unpatch.repository.paths import is_test

_SINCE = "Megatron Core 0.18 and later: on its output_processor hook"
_ON_THE_HOOK = "on Megatron Core's output_processor hook"  # of a file that no older one can import
_TOGETHER = "the same replacement as in {}"
_LISTED = 3  # reasons in one sentence; with more nobody reads them
_IMPORTS = (ast.Import, ast.ImportFrom)
_ON_ONE_MODEL = {"instance-attr", "submodule"}  # every other shape changes the class, and with it all models


class SideBySide:
    """The move of one downstream's uses."""

    def __init__(self, known: Analysis, bench: Workbench, options: Options, findings: Sequence[Finding]) -> None:
        self.known, self.bench, self.options, self.findings = known, bench, options, findings
        self.open = {(one.path, one.line, one.rule) for one in findings if one.verdict != DONE}
        self.found = Contribution()

    def outcome(self) -> Contribution:
        """The edits, what they take away, and why the rest stays."""
        uses: dict[str, list[tuple[str, ShimReference]]] = {}
        for path, look in self.known.looks.items():
            for place in look.asked if path not in self.known.exports.definitions and not is_test(path) else ():
                uses.setdefault(place.origin.where, []).append((path, place))
        for where, places in uses.items():
            self._settle(where, places[0][1].origin.shim, places)
        return self.found

    def _settle(self, where: str, shim: Shim, places: Sequence[tuple[str, ShimReference]]) -> None:
        """All uses of the patches of one file, together or not at all."""
        ours = [(path, place) for path, place in places if self._is_open(path, place)]
        if not ours:
            return
        mine = [one for one in self.findings if one.path == where]  # what goes where its users leave
        in_the_way = self._in_the_way(where)
        asked, because = bounds(self.bench, in_the_way, self.options)
        because = because or self._why_not(places)
        rules = sorted({flow_of(place.origin)[1] for _, place in places})
        reasons = [reason for rule in rules for reason in self.known.holds.reasons((where, rule))]
        final = any(reason.final for reason in reasons)
        # What somebody changed, or stands on the hook already, is theirs: it goes only where its rules are named too.
        named = self.options.unsafe_fixes and all(map(self.options.selection.names, rules))
        if because or final or not (named or all(reason.less for reason in reasons)):
            self._leave(ours, because or _listed(reasons), any(reason.stands for reason in reasons))
            return
        origin = places[0][1].origin
        data = origin.definition.source.data if origin.definition else b""
        notes = tuple(said for word, said in shim.differs if word in data)
        level = "behaviour" if reasons or notes else shim.level
        if not self.options.applies(level):
            return
        hands_over = self._hand_over(where, ours, Reason(rules[0], level, "", notes, group=where))
        first, _ = Counter(path for path, _ in ours).most_common(1)[0]  # the others move with it
        for path in dict.fromkeys(path for path, _ in ours) if not hands_over else ():
            source = self.bench.source(path)
            mine_here = [place for at, place in ours if at == path]
            for line, column in dict.fromkeys((place.node.lineno, place.node.col_offset) for place in mine_here):
                node = source.starting[line, column]
                names = {place.bound: place.origin.name for place in mine_here if place.node.lineno == line}
                rule = min(shim.names[name] for name in names.values())
                what = listed([*names.values()]) if len(names) == 1 else f"{len(names)} names"
                usual = _ON_THE_HOOK if self.options.floor(path) >= HOOK_SINCE else _SINCE
                says, title = shim.says or usual, f"side by side: {what} of the shim, else as before"
                if path != first:
                    says = _TOGETHER.format(first.rpartition("/")[2])
                    title = f"{title}; {says}"
                reason = Reason(rule, level, title, notes, line)
                reason = replace(reason, gain=self._gain(shim, path), group=where)
                assert isinstance(node, ast.ImportFrom)
                if self.options.plain(path):
                    reason = replace(reason, title=f"imports {what} from the shim")
                    self._plain(path, node, set(names.values()), shim.compat, reason)
                    continue
                change = guarded(source, node, shim.compat, frozenset(names.values()), says)
                self.found.asked.append(Asked(source, change, reason))
        self.found.asked += [replace(one, reason=replace(one.reason, group=where)) for one in asked]
        if shim.recipe:
            package = origin.definition.package if origin.definition else self.known.exports.contract.package
            self.found.recipes.append(shim.recipe.replace("{path}", where).replace("{package}", package))
        lines = {(path, place.node.lineno, flow_of(place.origin)[1]) for path, place in ours}
        self.found.removes += [one for one in self.findings if one.shape == USE and _place(one) in lines]
        # What is passed for the patch to read: the shim reads it too.
        self.found.removes += [
            one for one in self.findings if one.rule in shim.names.values() and "." not in one.target
        ]
        if not any(self.options.plain(path) for path, _ in ours):  # else its file is no longer used, and still there
            self.found.removes += [one for one in mine if one.verdict != DONE]
        self.found.removes += in_the_way if asked else []

    def _hand_over(self, where: str, places: Sequence[tuple[str, ShimReference]], reason: Reason) -> bool:
        """Let the old functions hand over, where that is better than to import others; whether it is."""
        definition = places[0][1].origin.definition
        tests = (look for path, look in self.known.looks.items() if is_test(path))
        replaced = {need.name for look in tests for need in look.needs if need.replaces and need.where == where}
        lines = {(path, place.node.lineno) for path, place in places}
        if any(self.options.plain(path) for path, _ in places):
            return False
        if definition is None or not handing_over.is_better(definition, len(lines), replaced, self.bench.editable):
            return False
        title = "its functions hand over to the shim where the hook is there"
        line = min(first_line(unit.node) for unit in definition.defined.values())
        reason = replace(reason, title=title, gain=self._gain(definition.shim, places[0][0]), finding_line=line)
        made = handing_over.changes(definition, definition.shim.says or _SINCE)
        self.found.asked += [Asked(definition.source, change, reason) for change in made]
        return True

    def _plain(self, path: str, node: ast.ImportFrom, names: set[str], module: str, reason: Reason) -> None:
        """Import names from the shim: where the file's order has it, in place where a comment or `as` would be lost."""
        source = self.bench.source(path)
        if "#" in source.text(node) or any(alias.asname for alias in node.names):
            self.found.asked.append(Asked(source, moved(source, node, module, names), reason))
            return
        imports = self.bench.imports(path)
        imports.drop(node, names, reason)
        imports.add(module, sorted(names), reason, [node])

    def _gain(self, shim: Shim, path: str) -> str:
        """What a maintainer has of the move, on the Megatrons in use."""
        live = self.options.live(path)
        gain = shim.gain_on(live)
        hit = [show(one) for one in live if gain and gain.since <= one < gain.until]
        return gain.text.format(" and ".join(hit)) if gain else ""

    def _is_open(self, path: str, place: ShimReference) -> bool:
        rule = flow_of(place.origin)[1]
        return (path, place.node.lineno, rule) in self.open and self.options.wants(rule)

    def _why_not(self, places: Sequence[tuple[str, ShimReference]]) -> str:
        """Why all of them stay; empty where nothing is in the way."""
        findings = {_place(one): one for one in reversed(self.findings)}
        for path, place in places:
            at = f"{path}:{place.node.lineno}"
            rule = flow_of(place.origin)[1]
            known = findings.get((path, place.node.lineno, rule))
            if known is not None and known.verdict == DONE:
                continue
            if known is None or not self.options.wants(rule):
                return f"{at} uses it too and has an ignore comment, or is not selected"
            source = self.bench.source(path)
            statement = source.starting.get((place.node.lineno, place.node.col_offset))
            if isinstance(statement, ast.stmt) and not source.owns_lines(statement):
                return f"{at} has another statement on its line: give each a line of its own"
        return ""

    def _in_the_way(self, where: str) -> list[Finding]:
        """Patches of every model elsewhere that the shim would meet, and refuse."""
        known = [*self.known.exports.definitions, where]
        others = (one for one in self.findings if one.path not in known and not one.in_test and one.verdict != DONE)
        carriers = (one for one in others if tuple(one.target.rpartition(".")[::2]) in HOOK and one.target)
        hooked = [parse_version(release) for release in RELEASES if parse_version(release) >= HOOK_SINCE]
        met = (
            one for one in carriers if one.shape not in {*_ON_ONE_MODEL, "mock", "patch-file", "wrapper", "subclass"}
        )
        return [one for one in met if any(map(one.live.on, hooked))]

    def _leave(self, places: Sequence[tuple[str, ShimReference]], because: str, stands: bool = False) -> None:
        """Say at each use, and once where the patches are defined, why they stay."""
        if (definition := places[0][1].origin.definition) is not None:
            names = sorted({place.origin.name for _, place in places})
            line = min(definition.defined[name].node.lineno for name in names if name in definition.defined)
            told = f"{listed(names)} {'is' if len(names) == 1 else 'are'} left: {because}"
            path, rule = definition.source.path, flow_of(places[0][1].origin)[1]
            self.found.remarks.append(Remark(path, line, rule, "left", told))
            changed = (self.known.changed.get((path, name), ()) for name in names if not stands)
            for one in dict.fromkeys(part for parts in changed for part in parts if part.own):
                near = f"; nearest is {one.release}, {one.lines} lines differ" if one.release else ""
                told = f"`{one.name}` is not the one of any {self.known.exports.contract.package} release{near}"
                self.found.remarks.append(Remark(one.path, one.line, rule, "differs", told, one.diff))
        for path, place in places if definition is None or not stands else ():
            rule = flow_of(place.origin)[1]
            self.found.remarks.append(
                Remark(path, place.node.lineno, rule, "left", f"{listed([place.origin.name])} is left: {because}")
            )


def _listed(reasons: Sequence[Blocker]) -> str:
    """Why, with the places of most weight, and which consent would do."""
    standing = [reason for reason in reasons if reason.stands]
    every = list(dict.fromkeys(reason.because for reason in standing or reasons))
    if len(every) > _LISTED:
        every[_LISTED:] = [f"and {len(every) - _LISTED} more places"]
    text = "; ".join(every)
    if any(reason.final for reason in reasons):
        return text
    return f"{text}; {OFFER} puts the shim in its place{'' if standing else ' all the same'}"


def _place(finding: Finding) -> tuple[str, int, str]:
    return finding.path, finding.line, finding.rule


def moved(source: Source, node: ast.ImportFrom, module: str, names: Collection[str]) -> Make:
    """Some names of an import from another module, in place; names that the other module does not have stay."""

    def make(statement: Any) -> Any:
        import libcst as cst

        indent = source.indentation(node)
        new = _line(source, statement, names, indent, module=cst.parse_expression(module), relative=())
        return cst.Module([*_rest(source, statement, names, indent), new], default_indent=step_of(source))

    return Make(node, make)


def guarded(source: Source, node: ast.ImportFrom, module: str, names: Collection[str], says: str) -> Make:
    """`try` some names of an import from another module; the statement as it stands, where that is not there.

    Names that the other module does not have are imported before. In a line that would be too long they stand in rows.
    """
    indent, step = source.indentation(node), step_of(source)

    def make(statement: Any) -> Any:
        import libcst as cst

        comment = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(f"# {says}"))
        new = _line(source, statement, names, indent + step, module=cst.parse_expression(module), relative=())
        old = _line(source, statement, names, indent + step)
        handler = cst.ExceptHandler(cst.IndentedBlock([old]), cst.Name("ImportError"))
        guard = cst.Try(cst.IndentedBlock([new], header=comment), [handler])
        before = _rest(source, statement, names, indent)
        apart: list[Any] = [cst.EmptyLine()] if before and not indent else []
        return cst.Module([*before, *apart, guard], default_indent=step)

    return Make(node, make)


def _line(source: Source, statement: Any, keeps: Collection[str], indent: str, **changes: Any) -> Any:
    """The import of the names that it keeps, in rows where its line would be too long."""
    import libcst as cst

    from mcore_unpatch.codemods.imports.statement import in_rows, keeping

    kept = keeping(statement, keeps) if any(one.evaluated_name not in keeps for one in statement.names) else statement
    return cst.SimpleStatementLine([in_rows(kept.with_changes(**changes), source.width - len(indent))])


def _rest(source: Source, statement: Any, names: Collection[str], indent: str) -> list[Any]:
    """The import of the names that stay, if there are any."""
    others = {alias.evaluated_name for alias in statement.names} - {*names}
    return [_line(source, statement, others, indent)] if others else []


def set_apart(asked: Sequence[Asked]) -> Iterator[Asked]:
    """Blank lines between imports and those of them that are guarded from now on, as formatters want it."""
    guards = {one.change.node: one for one in asked if isinstance(one.change, Make)}
    for node, of in guards.items():
        source = of.source
        assert isinstance(node, ast.stmt)
        suite = source.home[id(node)]
        index = suite.index(node)
        for first, second in pairwise(suite[max(index - 1, 0) : index + 2]):
            line = source.first_with_comments(second)
            both = isinstance(first, _IMPORTS) and isinstance(second, _IMPORTS)
            twice = second is node and first in guards  # which asked for it
            if both and not twice and not source.is_blank(line - 1):
                yield Asked(source, Insert(second, line, ""), of.reason)
