"""`make torture` in small, and before it: the script runs, and finds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from limits import patience

SCRIPT = Path(__file__).parents[3] / "tools/torture.py"


@pytest.mark.growth
@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
def test_a_few_of_each() -> None:
    amounts = ["--signals=4", "--kills=4", "--full=3", "--pairs=2", "--files=240", "--growth=3"]
    command = [sys.executable, str(SCRIPT), "--seed=2", *amounts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(300))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        "signals 4",
        "kills 4",
        "full 3",
        "pairs 2",
        "files 240",
        "growth 3",
    ]
