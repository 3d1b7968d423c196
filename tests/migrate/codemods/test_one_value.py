"""A finding and its fix are one value: every edit answers a finding, and nothing changes but where one says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
import releases
from goldens import CASES, GOLDEN, directives

from mcore_unpatch.codemods.planner import fixed, plan
from mcore_unpatch.codemods.testing import findings as found
from mcore_unpatch.editing.edits import Options, Repository
from mcore_unpatch.findings.rules import Selection

PATCHES = ("mtp_patch.py", "model_forward_fused.py", "model_forward_1f1b_overlap.py", "patch.py", "util.py")
CHECKOUTS = ("MCORE_UNPATCH_VERL", "MCORE_UNPATCH_NEMO_RL", "MCORE_UNPATCH_SKYRL")


def check(files: Mapping[str, bytes], options: Options) -> None:
    """With and without --unsafe-fixes."""
    present = {*files, *(folder.as_posix() for path in files for folder in PurePosixPath(path).parents)}
    findings = found(files, options)
    places = {(one.path, one.line, one.rule) for one in findings}
    choices = [replace(options, unsafe_fixes=unsafe) for unsafe in (False, True)]

    def repository() -> Repository:
        return Repository(sorted(files), present.__contains__, files.__getitem__)

    whole = repository()
    both = fixed(whole, findings, choices)
    for choice, (gone, _) in zip(choices, both, strict=True):
        made = plan(repository(), findings, choice)
        answered = {one.rule for one in gone}
        for edit in made.edits:  # one without a line is in another file than what it goes with
            beside = not edit.finding_line and edit.rule in answered
            assert beside or (edit.path, edit.finding_line, edit.rule) in places, edit
        assert bool(made.edits) == bool(gone)
        assert gone >= set(made.removes)


@pytest.mark.parametrize("case", CASES)
def test_golden_files(case: str) -> None:
    before = (GOLDEN / f"{case}.in.py").read_bytes()
    path, options = directives(before)
    check({path: before}, options)


@pytest.mark.slow
def test_a_release() -> None:
    """Its patches and one caller of them; the others are large, and no others in kind."""
    check(releases.patched_part("0.9.1", *PATCHES, "registry.py"), Options())


@pytest.mark.slow
def test_rules_that_are_not_selected() -> None:
    check(releases.patched_part("0.8.0", *PATCHES, "registry.py"), Options(selection=Selection(ignore=("MCU2",))))


@pytest.mark.parametrize("name", CHECKOUTS)
def test_checkouts(name: str) -> None:
    if not os.environ.get(name):
        pytest.skip(f"{name} names no checkout")
    top = Path(os.environ[name])
    check(
        {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*.py") if path.is_file()}, Options()
    )
