"""One migration from the paths a user names to the outcome: survey, plan, verify, write."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch import rewrites as codemods
from mcore_unpatch.editing.edits import Edit, Plan
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.effects.other_model import ON_THE_WAY, OnOther
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import GOES
from mcore_unpatch.megatron.hybrid import HYBRID
from mcore_unpatch.migrate.commits import commit
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.records import field, record, replace
from mcore_unpatch.repository.discover import root_of, top_of
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.say.other_model import sentence as elsewhere
from mcore_unpatch.survey import fixes
from mcore_unpatch.survey.core import no_collection
from mcore_unpatch.survey.fixes import Planner, sound_plan
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey
from mcore_unpatch.writing import journal
from mcore_unpatch.writing.allowed import refuse_unsafe


@record
class Request:
    """What the user asks for."""

    paths: list[Path] = field(default_factory=list)
    scan: ScanOptions = field(default_factory=ScanOptions)
    unsafe_fixes: bool = False
    exact: bool = False
    commit: bool = False
    allow_dirty: bool = False
    allow_no_vcs: bool = False


def preview(request: Request, planner: Planner | None = None, progress: Progress | None = None) -> Outcome:
    """What a migration would do; nothing is written."""
    if journal.locate(top := top_of(request.paths)).load(journal.RUNNING):
        raise UsageError(f"a migration of {shown(top)} was interrupted; run `unpatch undo` to restore it.")
    return _prepare(request, planner or codemods.plan, progress)


def migrate(request: Request, planner: Planner | None = None, progress: Progress | None = None) -> Outcome:
    """Migrate; raises `UsageError` with every file as it was. A run that was killed before is taken back first."""
    top = top_of(request.paths)
    with journal.begun(top) as (state, _):
        outcome = _prepare(request, planner or codemods.plan, progress)
        if outcome.rewrites:
            paths = [item.path for item in outcome.rewrites]
            refuse_unsafe(root_of(request.paths), top, paths, request.allow_dirty, request.allow_no_vcs)
            if request.commit:
                outcome.commits = commit(outcome)
            else:
                state.write(outcome.rewrites)
            outcome.written = True
    return outcome


@no_collection()
def _prepare(request: Request, planner: Planner, progress: Progress | None) -> Outcome:
    known = Survey(request.paths, replace(request.scan, base=None, baseline=None, fixes=True), progress)
    options = fixes.planned(known, unsafe=request.unsafe_fixes, exact=request.exact)
    made = sound_plan(known, known.findings, options, planner)
    unsound = {one: Left(Refusal.UNSOUND, made.left[one.path]) for one in known.findings if one.path in made.left}
    plan = replace(made.plan, left=made.plan.left | unsound, dependency=made.plan.dependency if made.rewrites else None)
    outcome = Outcome(known, _with_holes(known, plan), options, made.rewrites, known.findings)
    outcome.offers = codemods.offers(made.repository, known.options.selection)
    if not options.unsafe_fixes and any(map(fixes.may_be_fixed, outcome.left)):
        # What `scan` says of the findings, before a byte is written: what else could be done of the rest.
        outcome.findings = fixes.assessed(known)
    return outcome


def _with_holes(known: Survey, plan: Plan) -> Plan:
    """The plan; of what is rewritten behind a question that a HybridModel fails it says that the rewrite keeps that."""
    core = known.core
    on_hybrid = OnOther(core.names, HYBRID, core.megatrons.every[-1])
    rewritten = {(one.path, one.line) for one in plan.removes if one.verdict != GOES}
    holes: dict[tuple[str, int], str] = {}
    for patch in core.patches:
        place = (patch.path, patch.line)
        found = on_hybrid.of(core.judge.cases[patch]) if place in rewritten else None
        if found is not None and found.why in ON_THE_WAY:
            holes[place] = f"when the model is a HybridModel, the rewrite as the patch {elsewhere(found)}"

    def told(edit: Edit) -> Edit:
        hole = holes.get((edit.path, edit.finding_line))
        return replace(edit, notes=(*edit.notes, hole)) if hole else edit

    return replace(plan, edits=type(plan.edits)(map(told, plan.edits))) if holes else plan
