"""Which file of a repository lists what the new code needs."""

from pathlib import Path

import pytest

from mcore_unpatch.migrate.dependencies import listed

LINE = "mcore-unpatch[compat]"
POETRY = '[tool.poetry.dependencies]\npython = "^3.11"\n{}'


@pytest.mark.parametrize(
    ("line", "has_extra"),
    [("mcore-unpatch", False), ("mcore_unpatch[compat]>=0.1", True), ("MCORE.unpatch [x, Compat]== 1", True)],
)
def test_what_is_listed_is_seen(tmp_path: Path, line: str, has_extra: bool) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch\n{line}\n")
    assert listed(tmp_path, tmp_path) == ("requirements.txt", has_extra)
    assert listed(tmp_path / "pkg", tmp_path) == ("requirements.txt", has_extra)


def test_a_longer_name_is_another_package(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("mcore-unpatch-extras[compat]\nmegatron-core-tools\n")
    assert listed(tmp_path, tmp_path) is None


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


def test_one_listing_with_the_extra_is_enough(tmp_path: Path) -> None:
    text = f'[project]\ndependencies = ["mcore-unpatch"]\n[project.optional-dependencies]\nrl = ["{LINE}>=0.1"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert listed(tmp_path, tmp_path) == ("pyproject.toml", True)


def test_the_nearest_folder_that_lists_something(tmp_path: Path) -> None:
    for folder in ("project/src/deep", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("", "project"):
        (tmp_path / folder / "requirements.txt").write_text(f"{LINE}\n")
    (tmp_path / "other" / "setup.py").write_text("")
    named = {"project/src/deep": ("project/requirements.txt", True), "other": None, "": ("requirements.txt", True)}
    assert {folder: listed(tmp_path / folder, tmp_path) for folder in named} == named
