"""The downstream's own tests are the judge: what passed before a migration passes after it, or the table names it.

Needs a checkout (`MCORE_UNPATCH_VERL`, `MCORE_UNPATCH_NEMO_RL`, `MCORE_UNPATCH_SKYRL`) and an interpreter with what its
tests import (`MCORE_UNPATCH_DOWNSTREAM_PYTHON`); docs/results.md says which, and has the last result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from own_tests import NEMO_RL, SKYRL, VERL, Downstream, passed

Passed = Callable[[], set[str]]
DOWNSTREAMS = pytest.mark.parametrize("downstream", [VERL, NEMO_RL, SKYRL], ids=lambda one: one.name)


def migrated(folder: Path, *arguments: str) -> dict[str, str]:
    """Migrate a copy; what the table says by file."""
    command = [sys.executable, "-m", "mcore_unpatch", "migrate", "--output-format", "json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = {}
    for remark in json.loads(done.stdout)["remarks"]:
        said[remark["path"]] = said.get(remark["path"], "") + remark["text"]
    return said


def git(folder: Path, *arguments: str) -> str:
    """What a git command says."""
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def module(path: str) -> str:
    """What a JUnit report calls a test file."""
    return path.removesuffix(".py").replace("/", ".")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Downstream], tuple[Path, Passed]]:
    """A copy of a checkout, made once, and the tests that pass in it as it stands: run once for the same text."""

    @cache
    def made(downstream: Downstream) -> tuple[Path, Passed]:
        folder = downstream.copy(tmp_path_factory.mktemp("own") / "checkout")
        run = cache(lambda changes: passed(downstream.run(folder)))
        return folder, lambda: run(git(folder, "diff"))

    return made


@pytest.mark.parametrize("how", ["whole", "package", "unsafe"])
@DOWNSTREAMS
def test_what_passed_before_passes_after(
    downstream: Downstream,
    how: str,
    known: Callable[[Downstream], tuple[Path, Passed]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The whole repository; the package alone, of which the tests are no part; and with all that is offered."""
    folder, passing = known(downstream)
    before = passing()
    assert before
    arguments = {"whole": ["."], "package": [downstream.package], "unsafe": ["--unsafe-fixes", "."]}[how]
    try:
        said = migrated(folder, *arguments)
        changed = git(folder, "diff", "--name-only").split()
        after = passing()
    finally:
        git(folder, "checkout", "-q", ".")
    named = tuple(f"{module(path)}::" for path, text in said.items() if "(line " in text)
    broken = before - after
    with capsys.disabled():
        print(
            f"\n{downstream.name}, {how}: {len(changed)} files changed; "
            f"{len(before)} pass before, {len(before & after)} after"
        )
    assert not [name for name in broken if not name.startswith(named)]
    assert not broken or how == "unsafe"
