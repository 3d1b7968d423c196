"""Before a byte is written: the new files compile, a second run has nothing to do, the findings went as promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mcore_unpatch.codemods.edits import Options, Plan, Repository, Unsound
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.journal import NewContent
from mcore_unpatch.scanner.sources.parsing import why_not
from mcore_unpatch.survey.survey import Survey

Planner = Callable[[Repository, Sequence[Finding], Options], Plan]


def verify(
    survey: Survey,
    editable: frozenset[str],
    plan: Plan,
    rewrites: Sequence[NewContent],
    options: Options,
    planner: Planner,
) -> list[Finding]:
    """The findings that will be left; raises `Unsound` with the files that must not be rewritten like this, and why."""
    contents = {item.path: item.after for item in rewrites}
    _refuse({item.path: why for item in rewrites if (why := _not_compiling(item))})
    findings, errors = survey.rescan(contents)
    known = {error.path for error in survey.errors}
    _refuse({error.path: f"rewritten, {error.message}" for error in errors if error.path not in known})
    promised = [finding for finding in plan.removes if finding.path in editable]
    _refuse(_unexpected(survey.findings, findings, promised))
    again = planner(survey.repository(editable, contents), (*findings, *survey.elsewhere), options)
    unfinished = [edit for edit in again.edits if options.applies(edit)]
    _refuse({edit.path: f"a second run would change it again ({edit.title})" for edit in unfinished})
    return findings


def _refuse(reasons: dict[str, str]) -> None:
    if reasons:
        raise Unsound(reasons)


def _not_compiling(item: NewContent) -> str | None:
    if why := why_not(item.before, item.path):
        return f"it does not compile as it is ({why})"
    why = why_not(item.after, item.path)
    return why and f"rewritten it would not compile ({why})"


def _unexpected(before: Iterable[Finding], after: Iterable[Finding], removes: Iterable[Finding]) -> dict[str, str]:
    """Files with findings that came, or did not go; a finding is known by what it patches and how, since lines move."""
    old, new = Counter(map(_patch, before)), Counter(map(_patch, after))
    came = {
        path: f"rewritten it would patch {target} in a way that was not seen before"
        for path, target, _ in new - old
        if target  # else an ignore comment whose patch is gone
    }
    promised = Counter(map(_rule, removes))
    allowed = Counter(map(_rule, before)) - promised
    stayed = promised & (Counter(map(_rule, after)) - allowed)
    return {path: f"rewritten it would still patch {target}" for path, _, target, _ in stayed} | came


def _patch(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.target, finding.shape


def _rule(finding: Finding) -> tuple[str, str, str, str]:
    return finding.path, finding.rule, finding.target, finding.shape
