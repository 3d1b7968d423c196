"""What `unpatch migrate` would change, file by file, for reports that show it."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings import Report


def proposed_edits(report: Report) -> dict[str, str]:
    """Unified diffs by path, as in the report; every edit, those of --unsafe-fixes too. Nothing is written."""
    if not any(finding.fix for finding in report.findings):
        return {}
    from mcore_unpatch.migrate import diff
    from mcore_unpatch.migrate.run import Request, preview

    try:
        outcome = preview(Request([Path(report.root)], unsafe_fixes=True))
    except UsageError:
        return {}  # an interrupted migration, say: the report itself does not depend on it
    found = {}
    for item in outcome.rewrites:
        path = outcome.survey.found.shown(item.path)
        found[path] = diff.unified(path, item.before, item.after).decode(errors="replace").rstrip("\n")
    return found
