"""A downstream's own tests, run in a copy of its checkout by an interpreter that has what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from limits import patience

TOP = Path(__file__).parents[3]
PYTHON = "MCORE_UNPATCH_DOWNSTREAM_PYTHON"
_LIMIT = 900  # seconds for one run of one downstream's tests


@dataclass(frozen=True)
class Downstream:
    """A project: the variable that names its checkout, its package, and the tests that run on a CPU."""

    name: str
    variable: str
    package: str
    tests: tuple[str, ...]
    # Theirs starts a Ray cluster for every session, of which these tests make no use.
    without_conftest: bool = False
    needs_gpu_packages: bool = False  # for an import, see without_gpu.py

    def copy(self, folder: Path) -> Path:
        """The files of the checkout's commit, as a repository of its own; skips where no checkout is named."""
        named = os.environ.get(self.variable, "").split(os.pathsep)[0]
        if not named or not os.environ.get(PYTHON):
            pytest.skip(f"{self.variable} names no checkout of {self.name}, or {PYTHON} no interpreter for its tests")
        command = ["git", "-C", named, "ls-tree", "-r", "-z", "--name-only", "HEAD"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            source, target = Path(named, name), folder / name
            if source.is_file() and not source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        return committed(folder)

    def run(self, folder: Path) -> dict[str, str]:
        """The outcome of every test: `passed`, `failed`, `error` or `skipped`."""
        report = folder.parent / "junit.xml"
        report.unlink(missing_ok=True)
        options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={report}"]
        options += ["--noconftest"] if self.without_conftest else []
        options += ["-p", "without_gpu"] if self.needs_gpu_packages else []
        paths = os.pathsep.join(map(str, (folder, importable(folder.parent), Path(__file__).parent)))
        done = subprocess.run(
            [os.environ[PYTHON], "-m", "pytest", *options, *self.tests],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(_LIMIT),
        )
        assert report.exists(), done.stdout + done.stderr
        return outcomes(report)


def committed(folder: Path) -> Path:
    """Make a repository of a folder, with all of it committed."""
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    return folder


def importable(folder: Path) -> Path:
    """A folder with `mcore_unpatch` as an installation has it, for an interpreter that does not have it."""
    package = folder / "path" / "mcore_unpatch"
    if not package.exists():
        package.mkdir(parents=True)
        for part in (TOP / "mcore_unpatch").iterdir():  # codemods and compat are links there
            (package / part.name).symlink_to(part.resolve())
    return package.parent


def outcomes(report: Path) -> dict[str, str]:
    """What a JUnit report says of each test."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {"failure": "failed", "error": "error", "skipped": "skipped"}
        said = next((kinds[child.tag] for child in case if child.tag in kinds), "passed")
        found[f"{case.get('classname')}::{case.get('name')}"] = said
    return found


def passed(results: Mapping[str, str]) -> set[str]:
    """The tests that passed."""
    return {name for name, outcome in results.items() if outcome == "passed"}


VERL = Downstream(
    "veRL",
    "MCORE_UNPATCH_VERL",
    "verl",
    (
        "tests/models/test_model_forward_fused.py",
        "tests/utils/test_dynamic_cp_scheduler.py",
        "tests/utils/test_megatron_mtp_dcp.py",
    ),
)
NEMO_RL = Downstream(
    "NeMo RL",
    "MCORE_UNPATCH_NEMO_RL",
    "nemo_rl",
    (
        "tests/unit/models/megatron/test_train.py",
        "tests/unit/models/megatron/test_megatron_setup.py",
        "tests/unit/algorithms/test_loss_functions.py",
        "tests/unit/algorithms/test_sequence_packing_fusion.py",
        "tests/unit/algorithms/x_token/test_loss_utils.py",
    ),
    without_conftest=True,
    needs_gpu_packages=True,
)
SKYRL = Downstream(
    "SkyRL",
    "MCORE_UNPATCH_SKYRL",
    "skyrl",
    (
        "tests/backends/skyrl_train/mtp",
        "tests/backends/skyrl_train/test_fake_int4_qat.py",
        "tests/backends/skyrl_train/utils/test_replay_utils.py",
    ),
    without_conftest=True,
)
