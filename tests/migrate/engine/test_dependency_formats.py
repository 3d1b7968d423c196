"""Poetry's table gets the dependency too, one that lacks the extra gets that, and setup.py is left to people."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest
from dependency_sample import LINE, added
from sample_repository import Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import table
from mcore_unpatch.migrate.dependencies.choice import listed
from mcore_unpatch.migrate.dependencies.listing import Listing
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.migrate.undo import undo

POETRY = 'mcore-unpatch = {version = "*", extras = ["compat"]}\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('python = "^3.11"\ntorch = "^2"\n', f'python = "^3.11"\ntorch = "^2"\n{POETRY}'),
        (
            'python = "^3.11"\naccelerate = "*"\n# the trainer\ntorch = {version = "^2", extras = ["x"]}  # why\n',
            (
                'python = "^3.11"\naccelerate = "*"\n# the trainer\n'
                f'torch = {{version = "^2", extras = ["x"]}}  # why\n{POETRY}'
            ),
        ),
        ('numpy = "*"\ntorch = "*"\n', f'numpy = "*"\ntorch = "*"\n{POETRY}'),
        (
            'torch = "*"\n"a.b" = [\n  {version = "1", python = "<3.9"},\n]\n',
            f'torch = "*"\n"a.b" = [\n  {{version = "1", python = "<3.9"}},\n]\n{POETRY}',
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_poetrys_table(tmp_path: Path, before: str, after: str, newline: str) -> None:
    text = (
        '[tool.poetry]\nname = "x"\n\n[tool.poetry.dependencies]\n{}\n[tool.poetry.group.dev.dependencies]\nz = "*"\n'
    )
    old, new = (text.replace("{}", part).replace("\n", newline) for part in (before, after))
    assert added(tmp_path, {"pyproject.toml": old}) == ("pyproject.toml", new)


def test_poetrys_table_at_the_end_of_a_file(tmp_path: Path) -> None:
    before = '[tool.poetry.dependencies]\npython = "^3.11"'
    assert added(tmp_path, {"pyproject.toml": before})[1] == f"{before}\n{POETRY}".removesuffix("\n")


def test_poetrys_group_that_lists_megatron(tmp_path: Path) -> None:
    text = (
        '[tool.poetry.dependencies]\ntorch = "*"\n[tool.poetry.group.mcore.dependencies]\nmegatron-core = ">=0.16"\n'
        '[tool.poetry.dependencies.numpy]\nversion = "*"\n'
    )
    after = tomllib.loads(added(tmp_path, {"pyproject.toml": text})[1])["tool"]["poetry"]
    assert after["group"]["mcore"]["dependencies"]["mcore-unpatch"] == {"version": "*", "extras": ["compat"]}


def test_project_dependencies_come_before_poetrys(tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies]\ntorch = {source = "x"}\n[project]\ndependencies = ["torch"]\n'
    assert f'["torch", "{LINE}"]' in added(tmp_path, {"pyproject.toml": text})[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", 'from setuptools import setup\n\nsetup(install_requires=["torch", "megatron-core"])\n'),
        ("setup.py", "MCORE = ['megatron-core']\nsetup(extras_require={'mcore': MCORE})\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n    megatron-core>=0.18\n"),
    ],
)
def test_a_setup_file_is_left_to_people_with_the_line_to_add(tmp_path: Path, name: str, text: str) -> None:
    files = {name: text, "requirements.txt": "torch\n"}
    with pytest.raises(UsageError, match=rf"{name} is not edited; add 'mcore-unpatch\[compat\]' by hand"):
        added(tmp_path, files)
    assert listed(tmp_path, tmp_path) is None
    without = {name: text.replace("megatron-core", "numpy"), "requirements.txt": "megatron-core\n"}
    assert added(tmp_path, without)[0] == "requirements.txt"


def test_the_file_that_a_pyproject_names_comes_first(tmp_path: Path) -> None:
    pyproject = '[tool.setuptools.dynamic]\ndependencies = {file = ["base.txt"]}\n'
    files = {"pyproject.toml": pyproject, "base.txt": "torch\n", "requirements.txt": ""}
    assert added(tmp_path, files) == ("base.txt", f"torch\n{LINE}\n")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("requirements.txt", "a\nmcore-unpatch>=0.1,<2  # why\n", "a\nmcore-unpatch[compat]>=0.1,<2  # why\n"),
        ("requirements.txt", "mcore_unpatch [x] ==1 ; a\r\n", "mcore_unpatch [x,compat] ==1 ; a\r\n"),
        ("requirements.txt", "mcore-unpatch @ git+https://x/y", "mcore-unpatch[compat] @ git+https://x/y"),
        (
            "pyproject.toml",
            "[project]\ndependencies = [\n  'mcore-unpatch ~= 0.1',  # x\n]\n",
            "[project]\ndependencies = [\n  'mcore-unpatch[compat] ~= 0.1',  # x\n]\n",
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\nmcore-unpatch = "^0.1"  # x\ntorch = "*"\n',
            '[tool.poetry.dependencies]\nmcore-unpatch = {version = "^0.1", extras = ["compat"]} # x\ntorch = "*"\n',
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\nmcore-unpatch = { version = '^0.1', optional = true }\n",
            (
                "[tool.poetry.dependencies]\n"
                "mcore-unpatch = { version = '^0.1', optional = true, extras = [\"compat\"]}\n"
            ),
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\nmcore-unpatch = {extras = ['x'], git = \"https://x\"}\n",
            '[tool.poetry.dependencies]\nmcore-unpatch = {extras = [\'x\', "compat"], git = "https://x"}\n',
        ),
    ],
)
def test_the_extra_is_put_in_and_the_version_stays(tmp_path: Path, name: str, before: str, after: str) -> None:
    files = {name: before, **({"requirements-dev.txt": "megatron-core\n"} if name != "requirements.txt" else {})}
    assert added(tmp_path, files) == (name, after)
    (tmp_path / name).write_bytes(before.encode())
    assert listed(tmp_path, tmp_path) == (name, False)
    (tmp_path / name).write_bytes(after.encode())
    assert listed(tmp_path, tmp_path) == (name, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", "setup(install_requires=['a', 'mcore-unpatch{}==1'])"),
        ("setup.cfg", "[options]\ninstall_requires =\n  a\n  mcore-unpatch{}>1\n"),
    ],
)
def test_what_a_setup_file_lists_is_seen(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text.format(""))
    assert listed(tmp_path, tmp_path) == (name, False)
    (tmp_path / name).write_text(text.format("[compat]"))
    assert listed(tmp_path, tmp_path) == (name, True)


def test_one_listing_with_the_extra_is_enough(tmp_path: Path) -> None:
    text = f'[project]\ndependencies = ["mcore-unpatch"]\n[project.optional-dependencies]\nrl = ["{LINE}>=0.1"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert listed(tmp_path, tmp_path) == ("pyproject.toml", True)


def test_a_table_of_its_own_gets_the_extra(tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies.mcore-unpatch]\nversion = "^0.1"\n'
    assert added(tmp_path, {"pyproject.toml": text})[1] == f'{text}extras = ["compat"]\n'


def test_dotted_keys_get_one_more(tmp_path: Path) -> None:
    text = '[tool.poetry]\nname = "x"\ndependencies.torch = "*"\n'
    after = tomllib.loads(added(tmp_path, {"pyproject.toml": text})[1])["tool"]["poetry"]
    assert after["dependencies"] == {"torch": "*", "mcore-unpatch": {"version": "*", "extras": ["compat"]}}


def told(sample: Sample, **options: bool) -> str:
    """The row of the table, and the outcome is written if nothing else is asked for."""
    run = migrate if options else preview
    with contextlib.chdir(sample.root):
        text = " ".join(
            "".join(piece for piece, _ in line) for line in table.lines(run(sample.request(**options), planner))
        )
    return " ".join(text.partition("  dependency ")[2].split())


def test_the_lacking_extra_is_told_and_put_in_when_asked_for(sample: Sample) -> None:
    file = sample.root / "requirements.txt"
    file.write_text("mcore-unpatch>=0.1\n")
    sample.commit()
    assert "listed in requirements.txt without the extra: add it, or run with --add-dependency" in told(sample)
    assert file.read_text() == "mcore-unpatch>=0.1\n"
    assert "(the extra added to requirements.txt)" in told(sample, add_dependency=True)
    assert file.read_text() == "mcore-unpatch[compat]>=0.1\n"
    undo(sample.root)
    assert file.read_text() == "mcore-unpatch>=0.1\n"


@pytest.mark.parametrize("error", [ValueError("not TOML"), KeyError("dependencies")], ids=["not read", "not there"])
def test_what_cannot_be_read_back_is_not_written(error: Exception) -> None:
    class Broken(Listing):
        def meaning(self, text: str) -> tuple[list[str], object]:
            raise error

        def with_requirement(self, requirement: str) -> str:
            return requirement

    with pytest.raises(UsageError, match=r"cannot add 'new' to pyproject\.toml without changing more; add it by hand"):
        Broken(Path("pyproject.toml"), "", [], True).adding("new")
