"""Before a byte is written: the new files compile, a second run has nothing to do, the findings went as promised."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mcore_unpatch.codemods.edits import Options, Plan, Repository
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings import Finding
from mcore_unpatch.migrate.journal import Rewrite
from mcore_unpatch.migrate.survey import Survey

Planner = Callable[[Repository, Sequence[Finding], Options], Plan]

_REPORT = "Nothing was written. This is a fault of mcore-unpatch: please report it; `--ignore` leaves a rule out"


def verify(
    survey: Survey, plan: Plan, rewrites: Sequence[Rewrite], options: Options, planner: Planner
) -> tuple[Finding, ...]:
    """The findings that will be left; raises `UsageError` for a plan that must not be carried out."""
    contents = {item.path: item.after for item in rewrites}
    for item in rewrites:
        _compile(item)
    findings, errors = survey.rescan(contents)
    known = {error.path for error in survey.errors}
    for error in errors:
        if error.path not in known:
            raise UsageError(f"after the migration {error.path} could not be analysed: {error.message}. {_REPORT}")
    _compare(survey.findings, findings, plan)
    again = planner(survey.with_contents(contents), (*findings, *survey.elsewhere), options)
    if unfinished := [edit for edit in again.edits if options.applies(edit)]:
        first = unfinished[0]
        raise UsageError(f"a second run would change {first.path} again ({first.rule}: {first.title}). {_REPORT}")
    return tuple(findings)


def _compile(item: Rewrite) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(item.after, item.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        where = f" on line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UsageError(f"the new {item.path} would not compile{where}: {error}. {_REPORT}") from None


def _compare(before: Iterable[Finding], after: Iterable[Finding], plan: Plan) -> None:
    """A finding is known by what it patches and how, since lines move."""
    old, new = Counter(map(_patch, before)), Counter(map(_patch, after))
    for path, target, shape in new - old:
        if not target:  # an ignore comment whose patch is gone
            continue
        raise UsageError(f"the migration would add a patch of {target} ({shape}) to {path}. {_REPORT}")
    promised = Counter(map(_rule, plan.removes))
    allowed = Counter(map(_rule, before)) - promised
    for path, rule, target, _ in promised & (Counter(map(_rule, after)) - allowed):
        raise UsageError(f"{path} would still patch {target} ({rule}) after its migration. {_REPORT}")


def _patch(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.target, finding.shape


def _rule(finding: Finding) -> tuple[str, str, str, str]:
    return finding.path, finding.rule, finding.target, finding.shape
