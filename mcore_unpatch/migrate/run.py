"""One migration from the paths a user names to the outcome: survey, plan, verify, write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch import rewrites as codemods
from mcore_unpatch.editing.edits import Remark
from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.commits import commit
from mcore_unpatch.migrate.outcome import Dependency, Outcome, oldest_python
from mcore_unpatch.records import field, record, replace
from mcore_unpatch.repository import reading
from mcore_unpatch.repository.discover import root_of, top_of
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.survey import fixes
from mcore_unpatch.survey.fixes import Planner, sound_plan
from mcore_unpatch.survey.parallel import no_collection
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey
from mcore_unpatch.writing import journal
from mcore_unpatch.writing.allowed import refuse_unsafe

_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_PYTHON = re.compile(
    r"""(?<![\w.-])(?:requires-python|python_requires|python)\s*=\s*(?:"([^"\n]+)"|'([^'\n]+)'|([<>=~^\d][^\n]*))"""
)


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
    known = Survey(request.paths, replace(request.scan, base=None, baseline=None, possible=True, fixes=True), progress)
    options = fixes.planned(known, unsafe=request.unsafe_fixes, exact=request.exact)
    made = sound_plan(known, known.findings, options, planner)
    rewrites, remaining = made.rewrites, made.remaining
    plan = replace(made.plan, remarks=(*made.plan.remarks, *_left(known, made.left)))
    outcome = Outcome(known, plan, options, rewrites, remaining)
    outcome.offers = codemods.offers(made.repository, known.options.selection)
    if not options.unsafe_fixes and any(map(fixes.may_be_fixed, remaining)):
        # What `scan` says of the findings, before a byte is written: what else could be done of the rest.
        outcome.fixable = {finding: finding for finding in fixes.assessed(known)}
    if rewrites and plan.dependency:
        outcome.dependency = Dependency(
            plan.dependency, too_old_python(known.found.root, known.found.top, oldest_python(plan.dependency))
        )
    return outcome


def _left(known: Survey, reasons: dict[str, str]) -> Iterator[Remark]:
    for path, why in reasons.items():
        for finding in known.findings:
            if finding.path == path:
                text = f"left as it is: {why}; migrate it by hand, or leave it out with --exclude"
                yield Remark(path, finding.line, finding.rule, "left", text)


def too_old_python(root: Path, top: Path, oldest: int = 12) -> str:
    """What the nearest project file says, where it allows an older Python than the dependency; else nothing."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for folder in [root, *(above for above in root.parents if above == top or top in above.parents)]:
        for name in ("pyproject.toml", "setup.cfg", "setup.py"):
            stated = _PYTHON.search(_text(folder / name))
            said = next(filter(None, stated.groups()), "").strip() if stated else ""
            try:
                allowed = SpecifierSet(said) if said else None
            except InvalidSpecifier:
                continue
            if allowed is not None:
                older = any(f"3.{minor}.99" in allowed for minor in range(6, oldest))
                return f"{(folder / name).relative_to(top).as_posix()} says Python {said}" if older else ""
    return ""


def _text(file: Path) -> str:
    """The text of a file without its comments; none of one that is not there, a link, or not in UTF-8."""
    try:
        return _COMMENT.sub("", reading.read_own(file).decode())
    except (OSError, UnicodeDecodeError):
        return ""
