"""A path limits what is edited and reported; the repository around it is read as a whole."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_repository import ACTOR, CHANGED, FILES, Sample, planner

from mcore_unpatch.editing.edits import Options, Plan, Remark, Repository
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.run import preview
from mcore_unpatch.survey.survey import ScanOptions

PYTHON = {name for name in FILES if name.endswith(".py")}


class Asked:
    """A planner that keeps what it is asked first, and says something of every file."""

    project: Repository
    findings: Sequence[Finding] = ()

    def __call__(self, project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        if not self.findings:
            self.project, self.findings = project, findings
        remarks = [Remark(path, 1, "MCU101", "left", "stays") for path in project.paths]
        return replace(planner(project, findings, options), remarks=tuple(remarks), removes=())


@pytest.mark.parametrize("named", ["rl/deep", "rl/deep/trainer.py"])
def test_all_files_are_read_and_those_named_are_edited_and_reported(sample: Sample, named: str) -> None:
    asked = Asked()
    outcome = preview(replace(sample.request(), paths=[sample.root / named]), asked)
    assert set(asked.project.paths) == PYTHON
    assert asked.project.editable == {"rl/deep/trainer.py"}
    assert {finding.path for finding in asked.findings} == set(CHANGED)
    assert [item.path for item in outcome.rewrites] == ["rl/deep/trainer.py"]
    assert {remark.path for remark in outcome.remarks} == {"rl/deep/trainer.py"}
    assert {finding.path for finding in outcome.survey.findings} == {"rl/deep/trainer.py"}


def test_what_is_excluded_is_read_too(sample: Sample) -> None:
    asked = Asked()
    request = replace(sample.request(), scan=ScanOptions(jobs=1, exclude=("rl/deep",), exclude_base=sample.root))
    outcome = preview(request, asked)
    assert set(asked.project.paths) == PYTHON
    assert [item.path for item in outcome.rewrites] == ["rl/actor.py"]
    assert {finding.path for finding in outcome.remaining} == set()


def test_each_of_two_repositories_is_read_and_nothing_beside_them(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_bytes(ACTOR)
    second = Sample(tmp_path / "second").commit()
    asked = Asked()
    preview(replace(sample.request(), paths=[sample.root / "rl/deep", second.root / "rl"]), asked)
    assert set(asked.project.paths) == {f"{name}/{path}" for name in ("repo", "second") for path in PYTHON}
    assert asked.project.editable == {"repo/rl/deep/trainer.py", *(f"second/{path}" for path in CHANGED)}


def test_a_folder_that_git_ignores_is_read_where_it_is_named(sample: Sample) -> None:
    (sample.root / ".gitignore").write_text("build/\n")
    (sample.root / "build").mkdir()
    (sample.root / "build/actor.py").write_bytes(ACTOR)
    asked = Asked()
    preview(replace(sample.request(), paths=[sample.root / "build"]), asked)
    assert set(asked.project.paths) == PYTHON | {"build/actor.py"}
    assert asked.project.editable == {"build/actor.py"}
