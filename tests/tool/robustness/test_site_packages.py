"""Several thousand real files: no traceback, every file accounted for, and no finding that is not real."""

import sysconfig
from pathlib import Path

from mcore_unpatch.rules import Selection
from mcore_unpatch.scan import scan
from mcore_unpatch.survey import ScanOptions

# Packages that have to do with Megatron Core: its own source, and this tool with its examples.
REAL = ("megatron", "mcore_unpatch", "mcore-0.18.2")


def test_everything_that_is_installed() -> None:
    folders = [Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")]
    report = scan(folders, ScanOptions(selection=Selection.parse(["ALL"], ["MCU0"])))
    assert report.files_scanned >= 3000
    assert [f.path for f in report.findings if not set(REAL).intersection(Path(f.path).parts)] == []
    # What cannot be analysed is named with a reason: some packages ship files for other Pythons as test data.
    assert all(error.message for error in report.errors)
    assert len(report.errors) < report.files_scanned / 100
