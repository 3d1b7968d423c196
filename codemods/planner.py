"""The plan of a migration: every codemod in its order, and one answer.

First the downstreams that have shims, because a patch of theirs moves as a whole; then what never runs; then the
codemods that answer findings one by one; then the imports of each file, for all of these at once; last the comments,
for the findings that nothing before took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from mcore_unpatch.codemods import registry
from mcore_unpatch.codemods.answering import FixRunner
from mcore_unpatch.codemods.changes import Asked, Taken, least_safe
from mcore_unpatch.codemods.dead import delete_dead
from mcore_unpatch.codemods.imports.leftovers import drop_leftovers
from mcore_unpatch.codemods.making import edits_of, made
from mcore_unpatch.codemods.removal import together
from mcore_unpatch.codemods.shims.beside import SideBySide, set_apart
from mcore_unpatch.codemods.shims.sightings import Analysis
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.uncalled import unused_files
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Edit, Options, Plan, Repository
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import DONE
from mcore_unpatch.megatron.layout import HOOK_ARGUMENTS, HOOK_SINCE
from mcore_unpatch.megatron.versions import show

DEPENDENCY = "mcore-unpatch[compat]"
Known = list[Analysis]


def plan(repository: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """What is to be done about the findings of a repository."""
    known = downstreams(repository)
    bench, contribution = _found(repository, findings, options, known)
    contribution.asked = _with_imports(bench, contribution.asked)
    by_path = _by_path(together(contribution.asked))
    every = [edit for path, some in by_path for edit in edits_of(bench.source(path), some)]
    unused = list(unused_files(bench, findings, every, options))
    deleted = {edit.path for edit in unused}
    contribution.removes += [one for one in findings if one.path in deleted and one not in contribution.removes]
    edits = [*unused, *_answering(bench, every, contribution.removes, findings)]
    needs_compat = any(b"mcore_unpatch.compat" in edit.replacement for edit in edits)
    # What asks at run time needs nothing, nor what stands in a file that no older Megatron can import.
    bare = [edit for edit in edits if not edit.holds and options.floor(edit.path) < HOOK_SINCE]
    words = (HOOK_ARGUMENTS[0].encode(), b"mcore_unpatch.compat")
    needs_hook = any(word in edit.replacement for edit in bare for word in words)
    errors = {error for analysis in known for error in analysis.exports.errors}
    return Plan(
        tuple(sorted(edits, key=attrgetter("path", "start", "end"))),
        tuple(sorted(dict.fromkeys(contribution.remarks), key=attrgetter("path", "line", "rule"))),
        tuple(sorted(errors)),
        tuple(contribution.removes),
        f"megatron-core>={show(HOOK_SINCE)}" if needs_hook else None,
        _needed(edits) if needs_compat else None,
        tuple(contribution.recipes),
    )


def _needed(edits: Iterable[Edit]) -> str:
    """The operator alone for veRL's kernel, which runs without Megatron."""
    kernel, imported = b"mcore_unpatch.compat.verl.linear_cross_entropy", b"mcore_unpatch.compat"
    alone = all(edit.replacement.count(imported) == edit.replacement.count(kernel) for edit in edits)
    return "mcore-unpatch[ops]" if alone else DEPENDENCY


def fixed(
    repository: Repository, findings: Sequence[Finding], choices: Sequence[Options]
) -> Iterator[tuple[set[Finding], dict[Finding, str]]]:
    """The findings that a plan takes away, for each of some options; others are left though there is a way, and why."""
    for options in choices:
        bench, found = _found(repository, findings, options, downstreams(repository), told=False)
        deleted = {edit.path for edit in unused_files(bench, findings, (), options)}
        found.removes += [one for one in findings if one.path in deleted]
        bench.close()
        applied = {(asked.path, asked.reason.finding_line, asked.reason.rule) for asked in found.asked}
        changed = [finding for finding in findings if (finding.path, finding.line, finding.rule) in applied]
        places = {(one.path, one.line, one.rule) for one in found.removes}  # a line may patch several names
        yield (
            {*found.removes, *(one for one in changed if (one.path, one.line, one.rule) in places)},
            found.held,
        )


def _answering(
    repository: Repository, edits: Iterable[Edit], removes: Iterable[Finding], findings: Sequence[Finding]
) -> Iterator[Edit]:
    """Every edit with the finding that it answers, the nearest: one of its own rule, or a patch that it uses."""
    at: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        at[finding.path].append(finding)
    gone, uses = set(removes), _rules_of_uses()
    for edit in edits:
        here = at[edit.path] if not edit.finding_line else []
        same = [finding for finding in here if finding.rule == edit.rule]
        patches = [finding for finding in here if finding in gone] if edit.rule in uses else []
        candidates = [finding for finding in same if finding in gone] or patches or same
        if candidates:
            line = repository.data(edit.path).count(b"\n", 0, edit.start) + 1
            near = min(candidates, key=lambda finding: abs(finding.line - line))
            edit = replace(edit, rule=near.rule, finding_line=near.line)
        yield edit


def downstreams(repository: Repository) -> Known:
    """What a repository has of the downstreams with shims, whatever is found in it."""
    if downstreams not in repository.looks:
        contracts = [contract for codemod in registry.codemods() if (contract := codemod.contract)]
        bench = Workbench(repository)
        repository.looks[downstreams] = [Analysis.of(contract, bench) for contract in contracts]
    known: Known = repository.looks[downstreams]
    return known


def _found(
    repository: Repository, findings: Sequence[Finding], options: Options, known: Known, told: bool = True
) -> tuple[Workbench, Contribution]:
    """What all codemods but that of the imports and the comments found, and the bench."""
    bench, found = Workbench(repository), Contribution()
    for analysis in known:
        found.add(SideBySide(analysis, bench, options, findings).outcome())
    found.asked += set_apart(found.asked)
    moves = bool(found.asked or bench.import_changes())
    taken = [*bench.import_changes(), *found.asked]
    deleted, dead, closed = delete_dead(bench, _open(findings, found, options), options, taken, moves)
    found.add(deleted)
    alive = [finding for finding in _open(findings, found, options) if finding not in dead | closed]
    staying = RemainingPatches.of(findings, dead.union(found.removes))
    found.add(FixRunner(bench, options, Taken([*taken, *deleted.asked]), staying, told).run(alive))
    return bench, found


def _rules_of_uses() -> set[str]:
    return {rule.code for codemod in registry.codemods() if codemod.contract for rule in codemod.rules}


def _open(findings: Iterable[Finding], contribution: Contribution, options: Options) -> list[Finding]:
    gone = set(contribution.removes)
    open_ones = (finding for finding in findings if finding not in gone and finding.verdict != DONE)
    return [finding for finding in open_ones if options.wants(finding.rule)]


def _with_imports(bench: Workbench, asked: list[Asked]) -> list[Asked]:
    """The changes with those of the imports; an import that only removed code asked for goes too."""
    whole = [*bench.import_changes(), *asked]
    dropped = False
    for path, group in _by_path(whole):
        why = replace(least_safe(one.reason for one in group), title="an import that nothing uses any more", notes=())
        dropped |= drop_leftovers(bench, path, made(bench.source(path), group), why)
    return [*bench.import_changes(), *asked] if dropped else whole


def _by_path(asked: Iterable[Asked]) -> Iterator[tuple[str, list[Asked]]]:
    by_path = attrgetter("path")
    return ((path, list(group)) for path, group in groupby(sorted(asked, key=by_path), by_path))
