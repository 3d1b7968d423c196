"""The plan of a migration: every codemod in its order, and one answer.

First the downstreams that have shims, because a patch of theirs moves as a whole; then what never runs; then the
codemods that answer findings one by one; last the imports of each file, for all of these at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from mcore_unpatch.codemods import registry, standing
from mcore_unpatch.codemods.changes import Asked, Change, Reason, Taken
from mcore_unpatch.codemods.codemod import COMPAT, AddImport, Codemod, Fix, Match, Mends, Note, Situation
from mcore_unpatch.codemods.dead import delete_dead
from mcore_unpatch.codemods.imports.leftovers import drop_leftovers, unread
from mcore_unpatch.codemods.making import edits_of, made
from mcore_unpatch.codemods.quote import matches
from mcore_unpatch.codemods.shims.beside import SideBySide, set_apart
from mcore_unpatch.codemods.shims.holds import Analysis
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.uncalled import unused_files
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Edit, Options, Plan, Repository
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import DONE, Finding
from mcore_unpatch.megatron.layout import HOOK_ARGUMENTS, HOOK_SINCE
from mcore_unpatch.megatron.versions import show

DEPENDENCY = "mcore-unpatch[compat]"
_MOST = 100  # findings of one file, each of which is looked at with all of it


def plan(repository: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """What is to be done about the findings of a repository."""
    bench = _decided(repository, findings, options)
    every = [edit for path, some in _changes(bench) for edit in edits_of(repository.source(path), some)]
    unused = list(unused_files(repository, findings, every, options))
    deleted = {edit.path for edit in unused}
    bench.removes += [one for one in findings if one.path in deleted and one not in bench.removes]
    edits = [*unused, *every]
    needs_compat = any(COMPAT.encode() in edit.replacement for edit in edits)
    # What asks at run time needs nothing, nor what stands in a file that no older Megatron can import.
    bare = [edit for edit in edits if not edit.holds and options.floor(edit.path) < HOOK_SINCE]
    words = (HOOK_ARGUMENTS[0].encode(), COMPAT.encode())
    needs_hook = any(word in edit.replacement for edit in bare for word in words)
    return Plan(
        tuple(sorted(edits, key=attrgetter("path", "start", "end"))),
        bench.left,
        tuple(sorted({error for there in downstreams(repository) for error in there.places.errors})),
        tuple(bench.removes),
        f"megatron-core>={show(HOOK_SINCE)}" if needs_hook else None,
        _needed(edits) if needs_compat else None,
        tuple(bench.recipes),
    )


def fixed(
    repository: Repository, findings: Sequence[Finding], choices: Sequence[Options]
) -> Iterator[tuple[set[Finding], dict[Finding, Left]]]:
    """The findings that a plan takes away, for each of some options; others are left though there is a way, and why."""
    for options in choices:
        bench = _decided(repository, findings, options)
        deleted = {edit.path for edit in unused_files(repository, findings, (), options)}
        yield {*bench.removes, *(one for one in findings if one.path in deleted)}, bench.left


def downstreams(repository: Repository) -> list[Analysis]:
    """What a repository has of the downstreams with shims, whatever is found in it."""
    contracts = (codemod.contract for codemod in registry.codemods() if codemod.contract)
    return [Analysis.of(contract, repository) for contract in contracts]


def _needed(edits: Iterable[Edit]) -> str:
    """The operator alone for veRL's kernel, which runs without Megatron."""
    kernel, imported = b"mcore_unpatch.compat.verl.linear_cross_entropy", COMPAT.encode()
    alone = all(edit.replacement.count(imported) == edit.replacement.count(kernel) for edit in edits)
    return "mcore-unpatch[ops]" if alone else DEPENDENCY


def _decided(repository: Repository, findings: Sequence[Finding], options: Options) -> Workbench:
    """What all codemods decide; only the imports that nothing uses any more are still to come."""
    bench = Workbench(repository)
    for analysis in downstreams(repository):
        SideBySide(analysis, bench, options, findings).decide()
    bench.asked += set_apart(bench.asked)
    taken = Taken(bench.asked)
    dead = delete_dead(bench, _open(findings, bench, options), options, taken)
    alive = [finding for finding in _open(findings, bench, options) if finding not in dead]
    staying = RemainingPatches.of(findings, dead.union(bench.removes))
    _Fixes(bench, options, taken, staying).run(alive)
    return bench


def _open(findings: Iterable[Finding], bench: Workbench, options: Options) -> list[Finding]:
    gone = set(bench.removes)
    open_ones = (finding for finding in findings if finding not in gone and finding.verdict != DONE)
    return [finding for finding in open_ones if options.wants(finding.rule)]


class _Fixes:
    """What codemods answer one by one, with `fix`."""

    def __init__(self, bench: Workbench, options: Options, taken: Taken, staying: RemainingPatches) -> None:
        self.bench, self.options, self.taken, self.staying = bench, options, taken, staying
        self.closed: set[Finding] = set()  # for all other codemods
        # A finding is decided once for all plans below which the same patches stay.
        self.known: dict[tuple[str, Finding], list[Fix]] = bench.repository.known.setdefault(staying, {})

    def run(self, findings: Sequence[Finding]) -> None:
        """Ask every codemod for the findings of its rules."""
        by_path: defaultdict[str, list[Finding]] = defaultdict(list)
        for finding in findings:
            by_path[finding.path].append(finding)
        for codemod in registry.codemods():
            own, rules = (
                {rule.code for rule in codemod.rules},
                {rule.code for rule in codemod.rules} | {*codemod.answers},
            )
            for path, some in by_path.items() if type(codemod).fix is not Codemod.fix else ():
                asked = [one for one in some if one.rule in rules and one not in self.closed]
                source = self.bench.repository.readable(path) if path in self.bench.repository.editable else None
                if source is None or not asked or len(some) > _MOST:
                    continue
                with registry.blaming(codemod):
                    found = matches(codemod, source) if own else ()
                    known = {_place(finding): match for finding, match in found}
                    for finding in asked:
                        match = known.get(_place(finding)) if finding.rule in own else _at(source, finding)
                        if match is not None:
                            self._settle(codemod, source, match, finding)

    def _settle(self, codemod: Codemod, source: Source, match: Match, finding: Finding) -> None:
        """Take what a codemod says of one finding."""
        if (codemod.name, finding) not in self.known:
            around = Situation(finding, self.bench.repository, self.options, self.staying)
            self.known[codemod.name, finding] = list(codemod.fix(source, replace(match, situation=around)))
        wanted = self.known[codemod.name, finding]
        mends = next((answer for answer in wanted if isinstance(answer, Mends)), None)
        level = mends.level if mends else match.level or codemod.level
        notes = tuple(answer.text for answer in wanted if isinstance(answer, Note))
        title, gain = codemod.does or match.instead, mends.text if mends else ""
        reason = Reason(finding.rule, level, title, notes, finding.line, gain)
        asked = [Asked(source, one, reason) for one in wanted if isinstance(one, Change)]
        coming = [answer for answer in wanted if isinstance(answer, AddImport)]
        left = next((answer for answer in wanted if isinstance(answer, Left)), None)
        if asked and left is None:
            left = self._why_not(codemod, source, match, finding, any(new.module.startswith(COMPAT) for new in coming))
        if left is None and asked and not self.options.applies(level, mends=mends is not None):
            self.closed.add(finding)
        elif left is None and asked and not self.taken.take(asked):
            left = Left(Refusal.OVERLAP)
        elif left is None and asked:
            self.bench.asked += asked
            for new in coming:
                self.bench.imports(source.path).add(new.module, new.name, reason, match.node)
            self.closed.add(finding)
            self.bench.removes.append(finding)
        if left is not None:
            self.bench.left[finding] = left

    def _why_not(self, codemod: Codemod, source: Source, match: Match, finding: Finding, shims: bool) -> Left | None:
        """Why changes are not made: the Megatrons that the file meets, or a patch below."""
        older = self.options.without_hook(finding.path) if codemod.needs_hook or shims else None
        if found := older or standing.missing_import(source, match.node, self.options.judged(finding.path)):
            return found
        gone = [finding, *self.bench.removes]
        staying = RemainingPatches.of(self.staying.findings, gone)
        return staying.in_the_way(finding.path) if codemod.needs_hook else None


def _place(finding: Finding) -> tuple[int, int, str, str]:
    """What tells findings of a file apart, whatever was said of them since they were found."""
    return finding.line, finding.column, finding.rule, finding.target


def _at(source: Source, finding: Finding) -> Match | None:
    """The outermost node where a finding of the scanner begins."""
    node = source.starting.get((finding.line, finding.column - 1))
    instead = finding.replacement or finding.message
    return Match(node, finding.rule, finding.target, finding.message, instead) if node else None


def _changes(bench: Workbench) -> list[tuple[str, list[Asked]]]:
    """The changes of each file with those of its imports; an import that only removed code asked for goes too."""
    dropped = False
    for path, group in _by_path(bench.changes()):
        why = replace(group[0].reason, title="a value that nothing reads any more", notes=())
        bench.asked += unread(bench, path, made(bench.repository.source(path), group), why)
    whole = _by_path(bench.changes())
    for path, group in whole:
        why = replace(group[0].reason, title="an import that nothing uses any more", notes=())
        dropped |= drop_leftovers(bench, path, made(bench.repository.source(path), group), why)
    return _by_path(bench.changes()) if dropped else whole


def _by_path(asked: Iterable[Asked]) -> list[tuple[str, list[Asked]]]:
    by_path = attrgetter("path")
    return [(path, list(group)) for path, group in groupby(sorted(asked, key=by_path), by_path)]
