"""What the new code needs, against what the repository says: for an older Megatron nothing is written, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Result, unpatch

from mcore_unpatch.migrate.run import too_old_python

CALLER = b"from verl.models.mcore.mtp_patch import patch_postprocess\n"
HOOK = b"""from megatron.core.models.gpt.gpt_model import GPTModel


def scale(model: GPTModel, factor):
    original = model.decoder.forward

    def scaled(*args, **kwargs):
        out = original(*args, **kwargs)
        return out * factor

    model.decoder.forward = scaled
"""


def migrate(folder: Path, *options: str) -> Result:
    return unpatch("migrate", "--allow-no-vcs", "--jobs=1", *options, cwd=folder)


def repository(above: Path, **files: str) -> Path:
    folder = above / "repository"
    folder.mkdir()
    (folder / "caller.py").write_bytes(CALLER)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


@pytest.mark.parametrize("pin", ["megatron-core==0.17.1", "megatron-core==0.18.2", "megatron-core>=0.15", "torch"])
def test_every_pin_is_written_and_the_old_side_stays(tmp_path: Path, pin: str) -> None:
    top = repository(tmp_path, requirements_txt=f"{pin}\n")
    done = migrate(top)
    assert done.code == 0
    written = (top / "caller.py").read_bytes()
    assert b"mcore_unpatch.compat.verl" in written
    assert b"from verl" in written or "0.18" in pin  # an older Megatron still takes the old side
    assert migrate(top).code == 0
    assert (top / "caller.py").read_bytes() == written


PYTHONS = [
    ("pyproject.toml", '[project]\nname = "x"\nrequires-python = "{}"\n'),
    ("pyproject.toml", '[tool.poetry.dependencies]\npython = "{}"\n'),
    ("setup.cfg", "[options]\npython_requires = {}\n"),
    ("setup.py", "from setuptools import setup\n\nsetup(python_requires='{}')\n"),
]


@pytest.mark.parametrize(("name", "text"), PYTHONS)
@pytest.mark.parametrize(
    ("said", "old"),
    [
        (">=3.10", True),
        (">=3.11", True),
        (">=3.9,<3.12", True),
        (">=3.12", False),
        ("==3.12.*", False),
        (">=3.12,<3.15", False),
        ("^3.12", False),
        ("no version", False),
        ("  ", False),
    ],
)
def test_an_older_python_is_seen(tmp_path: Path, name: str, text: str, said: str, old: bool) -> None:
    (tmp_path / name).write_text(text.format(said))
    (tmp_path / "src").mkdir()
    assert too_old_python(tmp_path / "src", tmp_path) == (f"{name} says Python {said}" if old else "")


def test_an_older_python_is_told(tmp_path: Path) -> None:
    top = repository(tmp_path, pyproject_toml='[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = []\n')
    said = migrate(top, "--diff").err
    told = "pyproject.toml says Python >=3.10"
    assert told in " ".join(said.split())
    data = migrate(top, "--diff", "--output-format=json").json
    assert data["dependency"]["python"] == "pyproject.toml says Python >=3.10"
    (top / "caller.py").write_bytes(HOOK)  # imports nothing of ours
    done = migrate(top, "--diff", "--unsafe-fixes")
    assert "register_forward_hook" in done.out
    assert "Python" not in done.err
    (top / "caller.py").write_bytes(CALLER)
    (top / "pyproject.toml").write_text('[project]\nname = "x"\nrequires-python = ">=3.12"\ndependencies = []\n')
    assert "Python" not in migrate(top, "--diff").err


def test_nothing_is_told_where_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("def broken(:\n")
    (tmp_path / "pyproject.toml").write_text("[tool]\n")
    assert too_old_python(tmp_path, tmp_path) == ""
