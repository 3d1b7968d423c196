"""The stacks of public repositories, read by hand: `labels/stacks.json`, at one commit and some at an earlier one.

`MCORE_UNPATCH_CHECKOUTS` names a folder with a clone for each, under the names of the file. Without it nothing is
measured; an earlier commit is measured where the clone has it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from mcore_unpatch.stacks.stacks import Stacks

LABELS = json.loads((Path(__file__).parents[1] / "labels" / "stacks.json").read_text(encoding="utf-8"))


def test_labels_are_whole() -> None:
    assert len(LABELS) >= 20
    assert all(len(one["commit"]) == 40 for one in LABELS.values())
    assert sum(len(one["stacks"]) for one in LABELS.values()) >= 50


def clone(name: str) -> Path:
    folder = Path(os.environ.get("MCORE_UNPATCH_CHECKOUTS") or "nowhere") / name
    if not folder.is_dir():
        pytest.skip("MCORE_UNPATCH_CHECKOUTS names no folder with the checkouts")
    return folder.resolve()


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkout at the commit of its labels")
    return done.stdout.strip()


@pytest.mark.parametrize("name", LABELS)
def test_what_was_read_is_found_and_nothing_else(name: str) -> None:
    folder = clone(name)
    if git(folder, "rev-parse", "HEAD") != LABELS[name]["commit"]:
        pytest.skip("no checkout at the commit of its labels")
    assert {stack.name for stack in Stacks(folder).all} == set(LABELS[name]["stacks"])


@pytest.mark.parametrize(
    ("name", "commit"), [(name, commit) for name in LABELS for commit in LABELS[name].get("earlier", ())]
)
def test_at_an_earlier_commit(name: str, commit: str, tmp_path: Path) -> None:
    git(clone(name), "clone", "--quiet", "--shared", "--no-checkout", ".", str(tmp_path / "earlier"))
    git(tmp_path / "earlier", "checkout", "--quiet", commit)
    assert {stack.name for stack in Stacks(tmp_path / "earlier").all} == set(LABELS[name]["earlier"][commit])
