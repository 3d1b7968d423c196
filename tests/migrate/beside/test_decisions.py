"""What `unpatch migrate` decides in real repositories, without an option, beside what a maintainer wrote by hand.

On the pinned wheel of veRL with images of old and new Megatrons; on checkouts where a variable names one. Each edited
file has no new finding of the repository's own linters, as it configures them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import releases
from command import Result, unpatch
from downloads import unpacked
from linters import linted
from repository import Repository

EXPECTED = Path(__file__).parent / "expected"
CHECKOUTS = {
    "verl": "MCORE_UNPATCH_VERL",
    "nemo_rl": "MCORE_UNPATCH_NEMO_RL",
    "megatron_bridge": "MCORE_UNPATCH_MEGATRON_BRIDGE",
    "ms_swift": "MCORE_UNPATCH_MS_SWIFT",
}
IMAGES = ("0.12.1", "0.16.1", "0.18.0")
FILES = {f"docker/Dockerfile.{image}": f"RUN pip install megatron-core=={image}\n" for image in IMAGES}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """veRL 0.9.1 as a repository, with images for three Megatrons."""
    made = Repository(tmp_path_factory.mktemp("wheel"))
    shutil.copytree(unpacked("verl", "0.9.1") / "verl", made.path / "verl")
    made.commit(FILES)
    return made


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The files of it that patches live in, and those that install them."""
    made = Repository(tmp_path_factory.mktemp("part"))
    made.commit({**FILES, **releases.patched_part("0.9.1")})
    return made


@pytest.fixture(scope="module")
def told(wheel: Repository) -> Result:
    """What `migrate --diff` says of the whole wheel."""
    return unpatch("migrate", "--diff", "--jobs=1", cwd=wheel.path)


def _copy(name: str, folder: Path) -> Path:
    named = os.environ.get(CHECKOUTS[name], "")
    if not named:
        pytest.skip(f"{CHECKOUTS[name]} names no checkout")
    return _clone(Path(named), folder)


def _clone(source: Path, folder: Path) -> Path:
    if subprocess.run(["git", "clone", "-q", source, folder], check=False).returncode:  # a partial clone
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        Repository(folder).commit()
    for key, value in (("user.name", "a"), ("user.email", "a@example.org")):
        subprocess.run(["git", "-C", folder, "config", key, value], check=True)
    return folder


def _planned(folder: Path, *options: str) -> dict[str, Any]:
    return unpatch("migrate", "--check", "--output-format", "json", *options, cwd=folder).json


def _diff(folder: Path, *options: str) -> str:
    done = unpatch("migrate", "--diff", *options, cwd=folder)
    assert done.code == 0, done.err
    return done.out


def test_the_wheel_of_verl(told: Result) -> None:
    assert told.code == 0, told.err
    assert told.out == (EXPECTED / "verl_0.9.1.diff").read_text()


def test_the_kernel_is_an_offer(wheel: Repository, told: Result) -> None:
    said = " ".join(told.err.split())
    assert "linear_cross_entropy.py" in said and "--select kernels" in said
    done = unpatch("migrate", "--diff", "--jobs=1", "--select", "kernels", cwd=wheel.path)
    assert done.out == (EXPECTED / "verl_0.9.1_kernels.diff").read_text()
    assert "Gain: The kernel is 1.3 to 1.9 times as fast on an H200" in " ".join(done.err.split())
    assert "mcore-unpatch[ops] in images" in " ".join(done.err.split())  # which need no Megatron


def test_what_stands_beside_each_edit(part: Repository) -> None:
    made = _planned(part.path)
    assert {edit["level"] for edit in made["edits"]} == {"exact"}
    gain = "MTP with full recompute works on Megatron Core 0.18.0"
    assert any(edit["gain"].startswith(gain) for edit in made["edits"])
    assert made["requirement"] is None  # every Megatron still runs


def test_a_second_run_changes_nothing_and_the_rest_is_done(part: Repository, tmp_path: Path) -> None:
    copy = _clone(part.path, tmp_path / "copy")
    assert unpatch("migrate", "--commit", cwd=copy).code == 0
    titles = subprocess.run(
        ["git", "-C", copy, "log", "--format=%s"], check=True, capture_output=True, text=True
    ).stdout
    assert titles.splitlines()[0].startswith("MTP with full recompute works on Megatron Core 0.18.0")
    assert len(titles.splitlines()) == 2  # the move and its bound are one
    assert _diff(copy) == ""
    done = unpatch("scan", "--output-format", "json", cwd=copy).json["done"]
    assert {"verl/models/mcore/mtp_patch.py", "verl/utils/megatron_utils.py"} <= {one["path"] for one in done}


def test_a_commit_hook_that_refuses_stops_there(part: Repository, tmp_path: Path) -> None:
    copy = _clone(part.path, tmp_path / "copy")
    hook = copy / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho the spelling is wrong >&2\nexit 1\n")
    hook.chmod(0o755)
    done = unpatch("migrate", "--commit", cwd=copy)
    assert done.code == 2 and "the spelling is wrong" in done.err and "0 of 1 commits were made" in done.err
    assert subprocess.run(["git", "-C", copy, "status", "--porcelain"], check=True, capture_output=True).stdout == b""


@pytest.mark.parametrize("name", CHECKOUTS)
def test_a_checkout(name: str, tmp_path: Path) -> None:
    folder = _copy(name, tmp_path / name)
    assert _diff(folder) == (EXPECTED / f"{name}.diff").read_text()


@pytest.mark.parametrize("name", CHECKOUTS)
def test_no_new_finding_of_the_linters_of_a_checkout(name: str, tmp_path: Path) -> None:
    folder = _copy(name, tmp_path / name)
    for options in ([], ["--select", "kernels"]) if name == "verl" else ([],):
        files = [
            item["path"]
            for item in unpatch("migrate", "--check", "--output-format", "json", *options, cwd=folder).json["files"]
        ]
        before = {file: linted(folder, file) for file in files}
        assert unpatch("migrate", "--allow-dirty", *options, cwd=folder).code == 0
        assert files and {file: linted(folder, file) for file in files} == before
