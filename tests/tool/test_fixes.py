"""`fix` in the JSON report is what `unpatch migrate` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

SAMPLE = Path(__file__).parents[2] / "examples" / "tiny_rl"


def fixes(folder: Path) -> dict[str, str | None]:
    report = scan([folder], replace(ScanOptions(), fixes=True))
    return {f"{finding.path}:{finding.line}": finding.fix for finding in report.findings}


def test_fixes_are_asked_for_only_where_they_are_shown() -> None:
    assert {finding.fix for finding in scan([SAMPLE], ScanOptions()).findings} == {None}
