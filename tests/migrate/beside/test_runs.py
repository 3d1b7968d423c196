"""The migrated code runs on old and new Megatrons, with and without this package: which function, and the same bits.

`make everything` names more Megatrons in MCORE_UNPATCH_MEGATRONS, a folder of unpacked ones, and a checkout of veRL.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import unpatch
from downloads import unpacked
from limits import patience
from repository import Repository

pytestmark = pytest.mark.ranks
TESTS = Path(__file__).parents[2]
OLD, NEW = ("0.16.1", "0.17.1", "prehook"), ("0.18.0", "0.18.2", "0.19.2", "main")
RELEASES = ("0.16.1", "0.18.0", "0.19.2")  # of the package index
MORE = os.environ.get("MCORE_UNPATCH_MEGATRONS", "")
EVERY = tuple(name for name in (*OLD, *NEW) if name in RELEASES or (MORE and Path(MORE, name).is_dir()))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """VeRL as it is, and migrated without an option."""
    folder = tmp_path_factory.mktemp("trees")
    named = os.environ.get("MCORE_UNPATCH_VERL", "")
    before = Path(named) if named else unpacked("verl", "0.9.1")
    made = Repository(folder / "migrated")
    shutil.copytree(before / "verl", made.path / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    made.commit({f"docker/Dockerfile.{one}": f"RUN pip install megatron-core=={one}\n" for one in RELEASES})
    assert unpatch("migrate", "--select", "MCU1,MCU2,MCU7", cwd=made.path).code == 0
    return before, made.path


@cache
def _said(release: str, tree: Path, *flags: str) -> dict[str, Any]:
    megatron = Path(MORE, release) if MORE and Path(MORE, release).is_dir() else unpacked("megatron-core", release)
    paths = (megatron, TESTS, TESTS / "compat", os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("engine_mtp.py"), tree, *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(300),
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("release", EVERY)
def test_without_the_package_all_is_as_it_was(release: str, trees: tuple[Path, Path]) -> None:
    before, after = trees
    assert _said(release, after, "--alone") == _said(release, before)


@pytest.mark.parametrize("release", EVERY)
def test_with_the_package_the_same_bits_and_what_raised_works(release: str, trees: tuple[Path, Path]) -> None:
    before, after = trees
    was, now = _said(release, before), _said(release, after)
    for case, said in now.items():
        assert said["legacy"] is (release in OLD)  # which side runs
        assert len(said["digests"]) > 50
        if "error" in was[case]:
            assert case.startswith("recompute") and release.startswith("0.18")
            assert "padding_mask" in was[case]["error"]
            # Recomputing changes no bit: the oracle is the same model without it.
            assert said["digests"] == now[case.replace("recompute", "plain")]["digests"]
        else:
            assert said["digests"] == was[case]["digests"]
        if release in NEW:
            assert said["processor"] and not was[case].get("processor", False)


def test_the_crash_that_the_move_mends_is_there(trees: tuple[Path, Path]) -> None:
    was = _said("0.18.0", trees[0])
    assert all("error" in said for case, said in was.items() if case.startswith("recompute"))
