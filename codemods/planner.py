"""The plan of a migration: every codemod in its order, and one answer.

First the downstreams that have shims, because their moves take whole functions away; then what else has a seam; last
the comments, for the findings that nothing before took.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.codemods import annotate
from mcore_unpatch.codemods.edits import Edit, Options, Plan, Remark, Repository
from mcore_unpatch.codemods.nemo_rl.migrate import NemoRl
from mcore_unpatch.codemods.seams import proposals
from mcore_unpatch.codemods.shims.migrate import Migration
from mcore_unpatch.codemods.verl.migrate import Verl
from mcore_unpatch.findings import Finding

REQUIREMENT = "megatron-core>=0.18"
DEPENDENCY = "mcore-unpatch[compat]"


def plan(repository: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """What is to be done about the findings of a repository."""
    edits: list[Edit] = []
    remarks: list[Remark] = []
    removes: list[Finding] = []
    moves: list[Migration] = [Verl(repository, options), NemoRl(repository, options)]
    for move in moves:
        outcome = move.outcome(findings)
        edits += outcome.edits
        remarks += outcome.remarks
        removes += outcome.removes
    open_findings = [one for one in findings if one not in removes and options.wants(one.rule)]
    for step in (proposals.propose, annotate.annotate):
        outcome = step(repository, open_findings, options, edits)
        edits += outcome.edits
        remarks += outcome.remarks
        removes += outcome.removes
        open_findings = [one for one in open_findings if one not in outcome.removes]
    needs_compat = any(b"mcore_unpatch.compat" in edit.replacement for edit in edits if options.applies(edit))
    errors = {error for move in moves for error in move.exports.errors}
    return Plan(
        tuple(sorted(edits, key=lambda edit: (edit.path, edit.start, edit.end))),
        tuple(sorted(dict.fromkeys(remarks), key=lambda remark: (remark.path, remark.line, remark.rule))),
        tuple(sorted(errors)),
        tuple(removes),
        REQUIREMENT if needs_compat else None,
        DEPENDENCY if needs_compat else None,
    )
