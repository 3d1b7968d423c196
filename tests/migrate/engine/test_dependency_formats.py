"""What only people change: Poetry's tables, setup files, and a requirement that lacks the extra; all of it is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from dependency_sample import LINE, added
from sample_repository import Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.dependencies import listed
from mcore_unpatch.migrate.run import migrate

POETRY = '[tool.poetry.dependencies]\npython = "^3.11"\n{}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", 'from setuptools import setup\n\nsetup(install_requires=["torch", "megatron-core"])\n'),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n    megatron-core>=0.18\n"),
        ("pyproject.toml", POETRY.format('megatron-core = "*"\n')),
    ],
)
def test_such_a_file_is_left_to_people_with_the_line_to_add(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is not edited for you; add 'mcore-unpatch\[compat\]' there by hand"):
        added(tmp_path, {name: text, "requirements.txt": "torch\n"})
    assert listed(tmp_path, tmp_path) is None


def test_the_file_that_a_pyproject_names_comes_first(tmp_path: Path) -> None:
    pyproject = '[tool.setuptools.dynamic]\ndependencies = {file = ["base.txt"]}\n'
    files = {"pyproject.toml": pyproject, "base.txt": "torch\n", "requirements.txt": ""}
    assert added(tmp_path, files) == ("base.txt", f"torch\n{LINE}\n")


@pytest.mark.parametrize(
    ("name", "without", "with_extra"),
    [
        (
            "setup.py",
            "setup(install_requires=['mcore-unpatch==1'])",
            "setup(install_requires=['mcore-unpatch[compat]'])",
        ),
        ("requirements.txt", "mcore_unpatch [x] ==1\n", "mcore-unpatch [x, Compat]==1\n"),
        (
            "pyproject.toml",
            POETRY.format('mcore-unpatch = "^0.1"\n'),
            POETRY.format('mcore-unpatch = {extras = ["compat"]}\n'),
        ),
        (
            "pyproject.toml",
            "[dependency-groups]\nrl = ['mcore-unpatch']\n",
            "[dependency-groups]\nrl = ['mcore-unpatch[compat]']\n",
        ),
    ],
)
def test_what_is_listed_is_seen_in_every_format(tmp_path: Path, name: str, without: str, with_extra: str) -> None:
    (tmp_path / name).write_text(with_extra)
    assert listed(tmp_path, tmp_path) == (name, True)
    (tmp_path / name).write_text(without)
    assert listed(tmp_path, tmp_path) == (name, False)
    with pytest.raises(UsageError, match=r"write 'mcore-unpatch\[compat\]' there by hand"):
        added(tmp_path, {name: without})


def test_one_listing_with_the_extra_is_enough(tmp_path: Path) -> None:
    text = f'[project]\ndependencies = ["mcore-unpatch"]\n[project.optional-dependencies]\nrl = ["{LINE}>=0.1"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert listed(tmp_path, tmp_path) == ("pyproject.toml", True)


def test_a_lacking_extra_ends_the_migration_before_it_writes(sample: Sample) -> None:
    (sample.root / "requirements.txt").write_text("mcore-unpatch>=0.1\n")
    sample.commit()
    before = sample.contents()
    with pytest.raises(UsageError, match="by hand"):
        migrate(sample.request(add_dependency=True), planner)
    assert sample.contents() == before
