"""Triton decides at import whether it interprets: the tests of the kernels run in a process of their own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from limits import patience

HERE = Path(__file__).parent


@pytest.mark.first
@pytest.mark.ranks
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_the_kernels_by_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    files = [str(HERE / f"interpreted{name}.py") for name in ("", "_kl")]
    # What reads by pointers shares all but the reads: of the heads of two models those by the TMA are enough.
    done = subprocess.run(
        [*command, *files, "-k", "interpreted.py or tma"],
        # Ranks of its own, which interpret too: those of a nursery that somebody shares do not.
        env=os.environ
        | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "MCORE_UNPATCH_NURSERIES": ""}
        | {"CUDA_VISIBLE_DEVICES": ""},  # a card is not interpreted
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(280),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
