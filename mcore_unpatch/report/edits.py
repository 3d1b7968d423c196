"""What `unpatch migrate --unsafe-fixes` would change, file by file, for reports that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcore_unpatch.findings.finding import Finding

if TYPE_CHECKING:
    from mcore_unpatch.survey.survey import Survey


def proposed_edits(survey: Survey, findings: Sequence[Finding]) -> dict[str, str]:
    """Unified diffs by path from the root of the scan; `findings` are those of the survey before they were marked."""
    from mcore_unpatch.codemods.edits import Unsound
    from mcore_unpatch.codemods.planner import plan
    from mcore_unpatch.findings.fixes import planned
    from mcore_unpatch.migrate import diff
    from mcore_unpatch.migrate.placing import rewrites_of

    options, editable, rewrites = planned(survey, unsafe=True), survey.found.editable, []
    while editable:
        repository = survey.repository(editable)
        try:
            rewrites = rewrites_of(plan(repository, [*findings, *survey.elsewhere], options), repository, options)
            break
        except Unsound as problem:  # `migrate` says why it leaves these files: the report does not depend on it
            editable = editable.difference(problem.reasons) if not editable.isdisjoint(problem.reasons) else frozenset()
    shown = {survey.found.shown(item.path): item for item in rewrites}
    return {
        path: diff.unified(path, item.before, item.after).decode(errors="replace").rstrip("\n")
        for path, item in shown.items()
    }
