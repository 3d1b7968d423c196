"""The findings that codemods answer one by one, with `fix`: what each of them changes, and what it says of the rest."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mcore_unpatch.codemods import registry, standing
from mcore_unpatch.codemods.changes import Asked, Change, Reason, Remove, Taken
from mcore_unpatch.codemods.codemod import (
    COMPAT,
    AddImport,
    Codemod,
    Left,
    Match,
    Mends,
    Note,
    Situation,
)
from mcore_unpatch.codemods.quote import matches
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options, Remark, RemarkKind
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import Finding

# Each is looked at with all of its file; no file that people write has so many.
_MOST = 100
_TOO_MANY = f"no rewrite is proposed for a file with more than {_MOST} patches: split it, or migrate by hand"
_TAKEN = "another edit changes the same lines"


@dataclass
class FixRunner:
    """What comes of the findings that are still open."""

    bench: Workbench
    options: Options
    taken: Taken
    staying: RemainingPatches
    told: bool = True  # else nobody reads the remarks
    found: Contribution = field(default_factory=Contribution)
    closed: set[Finding] = field(default_factory=set)  # for all other codemods

    def run(self, findings: Sequence[Finding]) -> Contribution:
        """Ask every codemod for the findings of its rules."""
        codemods = [codemod for codemod in registry.codemods() if type(codemod).fix is not Codemod.fix]
        known_rules = {code for codemod in codemods for code in _rules(codemod)}
        asked = [finding for finding in findings if finding.rule in known_rules]
        number = Counter(finding.path for finding in asked)
        for finding in (finding for finding in asked if number[finding.path] > _MOST):
            self._remark(finding, "left", _TOO_MANY)
        findings = [one for one in asked if one.path in self.bench.editable and number[one.path] <= _MOST]
        for codemod in codemods:
            with registry.blaming(codemod):
                for finding, source, match in self._places(codemod, findings):
                    all_around = Situation(finding, self.bench, self.options, findings, self.staying)
                    self._settle(codemod, source, replace(match, situation=all_around), finding)
        return self.found

    def _places(self, codemod: Codemod, findings: Sequence[Finding]) -> Iterator[tuple[Finding, Source, Match]]:
        """The findings that a codemod may answer, each with its file and its place in it."""
        own, all_rules = {rule.code for rule in codemod.rules}, _rules(codemod)
        asked = [finding for finding in findings if finding.rule in all_rules and finding not in self.closed]
        for path in dict.fromkeys(finding.path for finding in asked):
            source = self.bench.readable(path)
            if source is not None:
                known = {_place(finding): match for finding, match in matches(codemod, source)} if own else {}
                for finding in (finding for finding in asked if finding.path == path):
                    if finding in self.closed:  # with one before it
                        continue
                    match = known.get(_place(finding)) if finding.rule in own else _at(source, finding)
                    if match is not None:
                        yield finding, source, match

    def _settle(self, codemod: Codemod, source: Source, match: Match, finding: Finding) -> None:
        """Take what a codemod says of one finding."""
        level, title = match.level or codemod.level, codemod.does or match.instead
        wanted = list(codemod.fix(source, match))
        mends = next((answer for answer in wanted if isinstance(answer, Mends)), None)
        level = mends.level if mends else level
        notes = tuple(answer.text for answer in wanted if isinstance(answer, Note))
        reason = Reason(finding.rule, level, title, notes, finding.line, mends.text if mends else "")
        asked = [Asked(source, one, reason) for one in wanted if isinstance(one, Change)]
        coming = [answer for answer in wanted if isinstance(answer, AddImport)]
        touched = [(one.path, one.touches) for one in asked]
        left = [answer.because for answer in wanted if isinstance(answer, Left)]
        if touched and not left:
            # The compat layer is not installed beside an older release.
            shims = any(new.module.startswith(COMPAT) for new in coming)
            older = self.options.without_hook(finding.path) if codemod.needs_hook or shims else ""
            missing = standing.missing_import(source, match.node, self.options.judged(finding.path))
            left += filter(None, [older, missing])
        if touched and not left:
            if codemod.needs_hook and (below := self._below(finding)):
                left.append(below)
            elif not self.options.applies(level, mends=mends is not None):
                self.closed.add(finding)
                return
            elif self.taken.take(touched):
                self.found.asked += asked
                for new in coming:
                    used = _saying([one.change for one in asked], new.name) or [match.node]
                    self.bench.imports(source.path).add(new.module, [new.name], reason, used)
                self.closed.add(finding)
                self.found.removes.append(finding)
            else:
                left.append(_TAKEN)
        for because in left:
            self.found.held[finding] = because
            # The steps of a row are for releases that have its way; of tests one sentence is enough.
            if self.told and finding.verdict != "keep" and not finding.in_test:
                self._remark(finding, "by-hand", codemod.steps(match, because))

    def _below(self, finding: Finding) -> str:
        """What is said of another patch that stays, and that the hook goes through."""
        gone = [finding, *self.found.removes]
        return RemainingPatches.of(self.staying.findings, gone).in_the_way(finding.path)

    def _remark(self, finding: Finding, kind: RemarkKind, text: str) -> None:
        self.found.remarks.append(Remark(finding.path, finding.line, finding.rule, kind, text))


def _saying(changes: Iterable[Change], name: str) -> list[ast.AST]:
    """The nodes where a name comes to be used."""
    texts = [(change.node, getattr(change, "text", None)) for change in changes if not isinstance(change, Remove)]
    return [node for node, text in texts if not isinstance(text, str) or name in text]


def _rules(codemod: Codemod) -> set[str]:
    return {*codemod.answers, *(rule.code for rule in codemod.rules)}


def _place(finding: Finding) -> tuple[int, int, str, str]:
    """What tells findings of a file apart, whatever was said of them since they were found."""
    return finding.line, finding.column, finding.rule, finding.target


def _at(source: Source, finding: Finding) -> Match | None:
    """The outermost node where a finding of the scanner begins."""
    node = source.starting.get((finding.line, finding.column - 1))
    instead = finding.replacement or finding.message
    return Match(node, finding.rule, finding.target, finding.message, instead) if node else None
