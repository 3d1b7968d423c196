"""What a skipped test needs: at the end of a run every reason is printed with the command that makes its tests run."""

import re
from collections import Counter

import pytest

# The reason of a skip, and what to do about it. The first that matches counts.
REMEDIES = (
    (
        "MCORE_UNPATCH_DOWNSTREAM_PYTHON",
        "MCORE_UNPATCH_DOWNSTREAM_PYTHON=PYTHON make everything CHECKOUTS=FOLDER; docs/results.md",
    ),
    (
        r"MCORE_UNPATCH_(?P<name>NEMO_RL|SKYRL|SLIME|MILES|ROLL|AREAL|VERL|CHECKOUTS)\b",
        "make everything CHECKOUTS=FOLDER, where FOLDER holds a git clone of the project",
    ),
    (
        "no checkout at the commit",
        "git -C CLONE checkout COMMIT, the one that tests/tool/labels names; make everything",
    ),
    ("einops", "make test on a machine with an NVIDIA GPU, with einops installed"),
    ("GPU|CUDA device|Apex", "make test on a machine with an NVIDIA GPU"),
    ("Megatron's main branch|its main branch", "MCORE_UNPATCH_MEGATRON_MAIN=CLONE make test; docs/results.md"),
    ("cannot be downloaded", "make test where pip reaches the package index"),
    ("Chromium", "apt-get install chromium; make test"),
    ("setpriv|only root|tmpfs", "sudo make test, or apt-get install util-linux"),
    ("git is not installed", "apt-get install git; make test"),
    ("could not import|installed", "make test, which installs what its tests need"),
    ("checkout alone|in a checkout|of a checkout|wheel has no|folders of a checkout", "make test in a git clone"),
    ("/dev/full|named pipes|one GPU is one rank|here is a GPU", "nothing: not possible in this case"),
)


def remedy(reason: str) -> str | None:
    """The command for a reason."""
    return next((command for pattern, command in REMEDIES if re.search(pattern, reason)), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each command, with the number of tests that wait for it."""
    waiting: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        waiting[remedy(reason) or reason.removeprefix("Skipped: ")] += 1
    if waiting:
        terminalreporter.section("how to run what was skipped")
        for command, count in waiting.most_common():
            terminalreporter.write_line(f"{count:5} {command}")
