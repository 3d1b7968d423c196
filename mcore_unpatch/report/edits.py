"""What `unpatch migrate --unsafe-fixes` would change, file by file, for reports that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.findings.finding import Finding

if TYPE_CHECKING:
    from mcore_unpatch.survey.survey import Survey


def proposed_edits(survey: Survey, findings: list[Finding]) -> dict[str, str]:
    """Unified diffs by path from the root of the scan; `findings` are those of the survey before they were marked."""
    from mcore_unpatch.findings.fixes import planned
    from mcore_unpatch.migrate import diff
    from mcore_unpatch.migrate.verify import sound_plan
    from mcore_unpatch.rewrites import plan

    made = sound_plan(survey, findings, planned(survey, unsafe=True), plan)
    shown = {survey.found.shown(item.path): item for item in made.rewrites}
    return {
        path: diff.unified(path, item.before, item.after).decode(errors="replace").rstrip("\n")
        for path, item in shown.items()
    }
