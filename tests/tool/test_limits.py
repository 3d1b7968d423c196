"""No test hangs for ever: the limit of pyproject.toml ends it, and says where it stood."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "under xdist"])
def test_a_test_that_hangs(tmp_path: Path, workers: list[str]) -> None:
    settings = tomllib.loads(PROJECT.read_text())["tool"]["pytest"]["ini_options"]
    assert settings["faulthandler_exit_on_timeout"]
    assert 60 < settings["faulthandler_timeout"] <= 300
    (tmp_path / "test_it.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(1000)\n")
    limit = ["-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *limit, *workers, "--max-worker-restart=0", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "in test_hangs" in done.stdout + done.stderr
