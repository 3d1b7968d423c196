"""`make everything` names the clones at hand to the tests, and runs all of its steps whatever fails."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "everything"
STEPS = ["lint", "test EVERY_CASE=1", "test-wheel", "margins", "growth"]
MAKE = """#!/bin/sh
echo "step $* with ${MCORE_UNPATCH_SKYRL:-none} of $MCORE_UNPATCH_CHECKOUTS"
case "$1" in test|margins) exit $FAULT;; esac
"""


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize(
    ("fault", "failed"), [(0, ""), (2, "failed: make test EVERY_CASE=1, make margins\n")], ids=["passes", "fails"]
)
def test_every_step_runs(tmp_path: Path, fault: int, failed: str) -> None:
    (tmp_path / "SkyRL/.git").mkdir(parents=True)
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CHECKOUTS": str(tmp_path), "FAULT": str(fault)}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert said == [f"step {step} with {tmp_path}/SkyRL of {tmp_path}" for step in STEPS]
    assert f"no clone at {tmp_path}/verl: tests beside its code are skipped\n" in done.stdout
    assert (done.stderr, done.returncode) == (failed, int(bool(fault)))
