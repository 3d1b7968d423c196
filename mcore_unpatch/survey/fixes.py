"""Which findings `unpatch migrate` would do something about, asked of the codemods themselves, and the plan for them.

Before a byte is written: the new files compile, a second run has nothing to do, the findings went as promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mcore_unpatch import rewrites as codemods
from mcore_unpatch.editing.edits import NewContent, Options, Plan, Repository, Unsound
from mcore_unpatch.editing.placing import rewrites_of, unified
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import DONE
from mcore_unpatch.records import record, replace
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.scanner.sources.parsing import why_not
from mcore_unpatch.survey.survey import Survey

Planner = Callable[[Repository, Sequence[Finding], Options], Plan]


def may_be_fixed(finding: Finding) -> bool:
    """Whether a codemod may know what to do: else none is loaded."""
    if finding.shape == "patch-file":
        return False
    never_runs = bool(finding.target) and finding.verdict == "delete"
    return finding.can_move or never_runs or finding.rule in codemods.answered()


def assessed(survey: Survey) -> list[Finding]:
    """The findings with what `migrate` would do about each, and what becomes of them so."""
    return survey.settled(_marked(survey), again=True)


def _marked(survey: Survey) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it."""
    findings, choices = survey.findings, [planned(survey, unsafe=unsafe) for unsafe in (True, False)]
    editable = survey.found.editable
    while True:
        repository = survey.downstreams(editable)
        fixes, held = dict[Finding, str](), dict[Finding, str]()
        both = codemods.fixed(repository, [*findings, *survey.elsewhere], choices)
        for name, (gone, left) in zip(("unsafe", "safe"), both, strict=True):
            fixes.update(dict.fromkeys(gone, name))
            held.update(left)
        repository.close()
        python = {fix.path for fix in fixes if fix.path in editable and fix.path.endswith(".py")}
        broken = {path for path in python if why_not(repository.data(path), path)}  # `migrate` leaves it too
        if not broken:
            told = (
                replace(finding.assessment, fix=fixes.get(finding), left_because=held.get(finding, ""))
                for finding in findings
            )
            return [replace(finding, assessment=each) for finding, each in zip(findings, told, strict=True)]
        editable -= broken


def planned(survey: Survey, *, unsafe: bool, exact: bool = False) -> Options:
    """What a migration of the files of a survey may do."""
    from mcore_unpatch.editing.edits import Options

    stacks = survey.stacks
    return Options(
        unsafe,
        survey.options.selection,
        survey.version,
        stacks.pinned,
        stacks.open_for,
        survey.before_the_hook,
        exact,
        survey.floor,
        stacks.needs_no_guard,
        survey.naming,
    )


@record
class SoundPlan:
    """A plan that may be written: the new contents, the findings that stay, and the files it had to leave, with why."""

    plan: Plan
    repository: Repository
    rewrites: list[NewContent]
    remaining: list[Finding]
    left: dict[str, str]


def sound_plan(survey: Survey, findings: list[Finding], options: Options, planner: Planner) -> SoundPlan:
    """Plan and verify. One file never stops the others: it stays as it is, and the plan is made anew around it."""
    editable, left = survey.found.editable, dict[str, str]()
    while True:
        repository, rewrites = survey.downstreams(editable), list[NewContent]()
        try:
            plan = planner(repository, (*findings, *survey.elsewhere), options)
            rewrites = rewrites_of(plan, repository)
            remaining = (
                _verified(survey, findings, plan, rewrites, options, planner, editable) if rewrites else findings
            )
            return SoundPlan(plan, repository, rewrites, remaining, left)
        except Unsound as problem:
            reasons = {path: why for path, why in problem.reasons.items() if path in editable}
            if not reasons:  # the effect of a rewrite on another file: which one it was is not known
                why = "; ".join(f"{shown(path)}: {why}" for path, why in problem.reasons.items())
                reasons = dict.fromkeys((item.path for item in rewrites), f"another file does not allow it ({why})")
            left |= reasons
            editable = editable.difference(reasons)


def proposed(survey: Survey, findings: list[Finding]) -> dict[str, str]:
    """What `migrate --unsafe-fixes` would change, as diffs by path from the root of the scan.

    `findings` are those of the survey before they were marked.
    """
    rewrites = sound_plan(survey, findings, planned(survey, unsafe=True), codemods.plan).rewrites
    paths = [survey.found.shown(item.path) for item in rewrites]
    diffs = (unified(path, item.before, item.after, item.gone) for path, item in zip(paths, rewrites, strict=True))
    return dict(zip(paths, (diff.decode(errors="replace").rstrip("\n") for diff in diffs), strict=True))


def _verified(
    survey: Survey,
    before: Sequence[Finding],
    plan: Plan,
    rewrites: Sequence[NewContent],
    options: Options,
    planner: Planner,
    editable: frozenset[str],
) -> list[Finding]:
    """The findings that will be left; raises `Unsound` with the files that must not be rewritten like this, and why."""
    contents = {item.path: item.after for item in rewrites}
    _refuse({item.path: why for item in rewrites if (why := _not_compiling(item))})
    found, errors = survey.rescan(contents)
    findings = [finding for finding in found if finding.verdict != DONE]
    known = {error.path for error in survey.errors}
    _refuse({error.path: f"rewritten, {error.message}" for error in errors if error.path not in known})
    promised = [finding for finding in plan.removes if finding.path in editable]
    _refuse(_unexpected(before, findings, promised))
    again = planner(survey.repository(editable, contents), (*findings, *survey.elsewhere), options)
    _refuse({edit.path: f"a second run would change it again ({edit.title})" for edit in again.edits})
    return findings


def _refuse(reasons: dict[str, str]) -> None:
    if reasons:
        raise Unsound(reasons)


def _not_compiling(item: NewContent) -> str | None:
    if why := why_not(item.before, item.path):
        return f"it does not compile as it is ({why})"
    why = why_not(item.after, item.path)
    return why and f"rewritten it would not compile ({why})"


def _unexpected(before: Iterable[Finding], after: Sequence[Finding], removes: Sequence[Finding]) -> dict[str, str]:
    """Files with findings that came, or did not go; a finding is known by what it patches and how, since lines move."""
    # What is told by a method's name alone comes and goes with what is known of names.
    before, after = (
        [one for one in some if one.confidence != "possible" or one.seam == "hook"] for some in (before, after)
    )
    old, new = Counter(map(_patch, before)), Counter(map(_patch, after))
    came = {
        path: f"rewritten it would patch {target} in a way that was not seen before"
        for path, target, _ in new - old
        if target  # else an ignore comment whose patch is gone
    }
    promised = Counter(map(identity, removes))
    allowed = Counter(map(identity, before)) - promised
    stayed = promised & (Counter(map(identity, after)) - allowed)
    return {path: f"rewritten it would still patch {target}" for path, _, target, _ in stayed} | came


def _patch(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.target, finding.shape


def identity(finding: Finding) -> tuple[str, str, str, str]:
    """What a finding is known by, since lines move."""
    return finding.path, finding.rule, finding.target, finding.shape
