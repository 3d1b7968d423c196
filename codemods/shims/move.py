"""One downstream's patches moved to its shims: files that define them, files that use them, and what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.exports import ShimReference, Use
from mcore_unpatch.codemods.shims.sightings import OFFER, Analysis, Flow, by_rule, closure, flow_of, listed, words
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Applicability, Options, Remark, as_name
from mcore_unpatch.editing.source import lines_of
from mcore_unpatch.findings.finding import USE, Finding
from mcore_unpatch.gate.suppress import comments
from mcore_unpatch.repository.paths import is_test

_LISTED = 3  # reasons in one sentence; with more nobody reads them


class Move:
    """The move of one downstream: what becomes of the files that may be edited."""

    contract: ClassVar[Contract]

    def __init__(
        self, known: Analysis, bench: Workbench, options: Options, findings: Sequence[Finding], held: Collection[str]
    ) -> None:
        """The findings are those to be answered: what is ignored or not selected stays, as do the rules in `held`."""
        self.bench, self.options = bench, options
        self.exports, self.changed, self.looks, self.holds = known.exports, known.changed, known.looks, known.holds
        self.findings, self.held = findings, held
        self.open = {(finding.path, finding.line, finding.rule) for finding in findings}
        self.found_there = cache(self._found_there)
        for path, use in self.looks.items():
            for place in use.asked if path in bench.editable and path not in self.exports.definitions else ():
                rule, definition = flow_of(place.origin)[1], place.origin.definition
                if options.wants(rule) and (path, place.node.lineno, rule) not in self.open:
                    if definition is None or not self.found_there(definition, rule):
                        self.holds.keeps(place, path, "uses it too and has an ignore comment")
        self.uses: list[Use] = [self._turn(path) for path in self.exports.imports]

    def _turn(self, path: str) -> Use:
        look, data = self.looks[path], self.bench.data(path)
        says_more = any(name.encode() in data for name in self.contract.private)
        if path not in self.bench.editable or not (look.asked or says_more):
            return look
        if path in self.exports.definitions:  # its imports go with its code: what it asks for is all that counts
            editor = ImportEditor(self.bench.source(path), self.bench)
            return Use(path, self.exports, self._why_moved, lambda: editor)
        return Use(path, self.exports, partial(self.why, path), partial(self.bench.imports, path))

    def _why_moved(self, place: ShimReference) -> Reason | None:
        """Why a name is the shim's wherever it stands."""
        level = self.level(flow_of(place.origin))
        return Reason(flow_of(place.origin)[1], level, "imports the shim") if level else None

    def why(self, path: str, place: ShimReference) -> Reason | None:
        """Why a name is turned to its shim at a place; None if it is not to be."""
        rule, line = flow_of(place.origin)[1], place.node.lineno
        reason = self._why_moved(place) if (path, line, rule) in self.open else None
        return reason and replace(reason, finding_line=line)

    def level(self, *flows: Flow) -> Applicability | None:
        """How flows that go together are edited; None if they stay.

        What somebody changed, or stands on the hook already, is theirs: it goes only where its rule is named too.
        """
        reasons = [(rule, reason) for where, rule in flows for reason in self.holds.reasons((where, rule))]
        names = self.options.selection.names
        asked = self.options.unsafe_fixes and all(reason.less or names(rule) for rule, reason in reasons)
        final = any(rule in self.held for _, rule in flows) or any(reason.final for _, reason in reasons)
        if final or (reasons and not asked):
            return None
        return "unsafe" if reasons else "safe"

    def moves(self, definition: Definition, rule: str) -> Applicability | None:
        """How a patch goes from the file that defines it; None if it stays."""
        level = self.level((definition.source.path, rule))
        return level if level and self.found_there(definition, rule) else None

    def _found_there(self, definition: Definition, rule: str) -> bool:
        """Whether something was found in the file that defines a patch, and no comment tells any of it to stay."""
        path = definition.source.path
        lines = [finding.line for finding in self.findings if finding.path == path and finding.can_move]
        told = [comment.line for comment in comments(definition.source.data)]
        own = {line for unit in closure(definition, rule) for line in lines_of(unit.node)}
        return path in self.bench.editable and not own.isdisjoint(lines) and own.isdisjoint(told)

    def outcome(self) -> Contribution:
        """Edits of every file but those of imports, remarks on what differs or stays, and the findings that go."""
        found = Contribution()
        gone = {(use.path, place.node.lineno, flow_of(place.origin)[1]) for use in self.uses for place in use.moved}
        found.removes += [one for one in self.findings if one.shape == USE and (one.path, one.line, one.rule) in gone]
        for use in self.uses:
            if use.path not in self.exports.definitions:
                found.asked += use.changes
        for path, definition in self.exports.definitions.items():
            if path in self.bench.editable:
                self._rewrite(definition, found)
        found.remarks += [*self._differing(), *self._left(), *self._replaced()]
        return found

    def _rewrite(self, definition: Definition, contribution: Contribution) -> None:
        path = definition.source.path
        rules = definition.shim.names
        levels = {rule: level for rule in by_rule(definition) if (level := self.moves(definition, rule))}
        names = {name: levels[rules[name]] for name in definition.defined if rules[name] in levels}
        if not names:
            return
        asked_by = [(use.path, need.name) for use in self.uses for need in use.needs if need.where == path]
        # With consent, what only tests know goes with the rest: they are told.
        needed = frozenset(name for user, name in asked_by if not (self.options.unsafe_fixes and is_test(user)))
        reached = frozenset(name for _, name in asked_by)
        consent: Applicability = "unsafe" if "unsafe" in names.values() or reached - needed else "safe"
        exported = names if self.contract.keeps_names else [name for name in names if name in needed]
        title = "has its names from the shim" if exported else "loses the patch"
        reason = Reason(min(rules.values()), consent, title)
        asked, gone = definition.without(names, exported, needed, reached, reason, self.bench.imports(path))
        contribution.asked += asked
        contribution.removes += [
            finding
            for finding in self.findings
            if finding.path == path and any(first <= finding.line <= last for first, last in gone)
        ]
        users = [use for use in self.uses if not is_test(use.path)]
        staying = (place for use in users for place in use.asked if place not in use.moved)
        resolved = {
            path,
            *(use.path for use in users if use.asked),
        }  # other files may mean it by a name that leads nowhere
        saying = self.bench.saying(as_name(definition.shim.module))
        known = resolved.issuperset(one for one in saying if one.endswith(".py") and not is_test(one))
        if exported and known and not any(place.origin.where == path for place in staying):
            text = f"nothing here uses {listed(sorted(exported))}: delete this file, unless code elsewhere imports it"
            contribution.remarks.append(Remark(path, definition.units[0].node.lineno, reason.rule, "guard", text))
        moved = list(dict.fromkeys(rules[name] for name in names))
        contribution.remarks += _tests_of_internals(definition, moved, self.looks.values())

    def _differing(self) -> Iterator[Remark]:
        told: set[tuple[str, str]] = set()
        for (path, name), differences in self.changed.items():
            rule = self.exports.definitions[path].shim.names[name]
            left = self._stands((path, rule)) or self.options.older(path)  # for another reason
            goes = self.moves(self.exports.definitions[path], rule)
            for difference in differences if self.options.wants(rule) and not left else ():
                if (difference.path, difference.name) in told or not (difference.own or goes):
                    continue
                told.add((difference.path, difference.name))
                text = f"`{difference.name}` is not the one of any {self.contract.package} release"
                if difference.release:
                    differ = f"{difference.lines} lines differ" if difference.lines > 1 else "1 line differs"
                    text += f"; nearest is {difference.release}, {differ}"
                yield Remark(difference.path, difference.line, rule, "differs", text, difference.diff)

    def _replaced(self) -> Iterator[Remark]:
        """Which numbers change where a changed function is replaced all the same."""
        for (path, name), differences in self.changed.items():
            definition = self.exports.definitions[path]
            if self.moves(definition, rule := definition.shim.names[name]):
                parts = list(dict.fromkeys(part.name for part in differences))
                text = (
                    f"`{name}` now computes what {self.contract.package} does: what differs in {listed(parts)} is lost"
                )
                yield Remark(path, definition.defined[name].node.lineno, rule, "numerics", text)
        for path, definition in self.exports.definitions.items():
            for rule, names in by_rule(definition).items():
                stood = any(reason.stands for reason in self.holds.reasons((path, rule)))
                if stood and self.moves(definition, rule):
                    line = min(definition.defined[name].node.lineno for name in names)
                    better = f": {definition.shim.gain}" if definition.shim.gain else ""
                    text = f"the shim computes in place of {self.contract.package}'s own `output_processor`{better}"
                    yield Remark(path, line, rule, "numerics", text)

    def _left(self) -> Iterator[Remark]:
        """Every flow that stays, where it is defined and where it is used."""
        for path, definition in self.exports.definitions.items():
            for rule, names in by_rule(definition).items():
                line = min(definition.defined[name].node.lineno for name in names)
                if because := self._why_left((path, rule)):
                    text = f"{listed(names)} {'is' if len(names) == 1 else 'are'} left: {because}"
                    if older := self.options.older(path):  # the same for all of them: then it is said once
                        text = f"not rewritten: {older}"
                        yield from (
                            Remark(path, finding.line, finding.rule, "left", text)
                            for finding in self.findings
                            if finding.path == path and finding.can_move
                        )
                    elif self._stands((path, rule)):
                        text = _stands(definition.shim.gain)
                    yield Remark(path, line, rule, "left", text)
        for use in self.uses:
            for _, node, origin in use.asked:
                flow, line = flow_of(origin), node.lineno
                because = self._why_left(flow)
                if not because or self.options.older(use.path):
                    continue  # that is told of the finding
                if self._stands(flow) and origin.definition is None:
                    yield Remark(use.path, line, flow[1], "left", _stands(origin.shim.gain))
                elif not self._stands(flow):
                    if origin.where in self.bench.editable:
                        because = f"it still comes from {origin.where}"
                    yield Remark(use.path, line, flow[1], "left", f"`{origin.name}` is left: {because}")

    def _stands(self, flow: Flow) -> bool:
        """Whether a flow stays because it stands on the hook, whatever else may be said of it."""
        return bool(self._why_left(flow)) and any(reason.stands for reason in self.holds.reasons(flow))

    def _why_left(self, flow: Flow) -> str:
        """Why a flow stays; empty if it does not, or is not wanted to go."""
        if flow[1] in self.held or not self.options.wants(flow[1]) or self.level(flow):
            return ""
        if flow[0] in self.exports.definitions and (older := self.options.older(flow[0])):
            return older
        reasons = self.holds.reasons(flow)
        listed = list(dict.fromkeys(reason.because for reason in reasons))
        if len(listed) > _LISTED:
            listed[_LISTED:] = [f"and {len(listed) - _LISTED} more places"]
        text = "; ".join(listed)
        if any(reason.final for reason in reasons):
            return text
        if all(reason.less for reason in reasons):
            return f"{text}; `--unsafe-fixes` puts the shim in their place"
        return f"{text}; port that first, or {OFFER} replaces it all the same"


def _stands(gain: str) -> str:
    better = f": {gain}" if gain else ""
    return f"this passes `output_processor` already and is left alone; {OFFER} puts the shim in its place{better}"


def _tests_of_internals(definition: Definition, rules: Sequence[str], looks: Iterable[Use]) -> Iterator[Remark]:
    """One remark per test file on what it knows of the functions of these rules."""
    path = definition.source.path
    moved = {unit for rule in rules for unit in closure(definition, rule)}
    outside = definition.shim.names.keys() | frozenset().union(
        *(unit.uses for unit in definition.units if unit not in moved)
    )
    for use in looks:
        tests: dict[str, int] = {}
        for need in use.needs if is_test(use.path) else ():
            inside = need.replaces or need.name not in outside
            if need.where == path and inside and need.name in words(moved):
                tests.setdefault(need.name, need.line)
        if tests:
            places = ", ".join(f"`{name}` (line {line})" for name, line in sorted(tests.items(), key=lambda i: i[1]))
            text = f"this test knows {places} of {path}, which nothing else runs any more"
            remark = f"{text}: adapt it to the shim, or delete it"
            yield Remark(use.path, min(tests.values()), rules[0], "by-hand", remark)
