"""No test hangs for ever, and none is ended for being slow on a machine that has other work."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import limits
import pytest
from limits import Countdown, patience

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TESTS = Path(__file__).parents[1]
LOADED = """
import limits, watchdog

limits.slowness = lambda: 100.0
watchdog.LOOK = 0.05
"""
WATCHED = """
from watchdog import Watchdog

def pytest_configure(config):
    config.pluginmanager.register(Watchdog(config))
"""


def run_pytest(folder: Path, conftest: str, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `test` in a project of its own, with a limit of one second for each."""
    (folder / "conftest.py").write_text(conftest + WATCHED)
    (folder / "test_it.py").write_text(test)
    limit = ["-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true", "--max-worker-restart=0"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *limit, *options, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "under xdist"])
def test_a_test_that_hangs(tmp_path: Path, workers: list[str]) -> None:
    done = run_pytest(tmp_path, "", "import time\n\ndef test_hangs():\n    time.sleep(1000)\n", *workers)
    assert done.returncode != 0
    assert "in test_hangs" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_test_that_is_slow_on_a_loaded_machine(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, LOADED, "import time\n\ndef test_slow():\n    time.sleep(2)\n")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_limit_of_this_project() -> None:
    settings = tomllib.loads(PROJECT.read_text())["tool"]["pytest"]["ini_options"]
    assert settings["faulthandler_exit_on_timeout"]
    assert 60 < settings["faulthandler_timeout"] <= 300


def test_seconds_count_for_less_while_more_processes_want_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, load = [0.0], [0.5]
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(limits.os, "getloadavg", lambda: (load[0], 0, 0))
    countdown = Countdown(60)
    assert (patience(60), countdown.wait()) == (60, limits.LOOK)
    clock[0] = 20
    assert countdown.left() == 40  # an idle machine
    load[0], clock[0] = 10 * cores, 60
    assert (countdown.left(), patience(60)) == (36, 600)
    clock[0] = 1000
    assert (countdown.left(), countdown.wait()) == (0, 0)
