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


@pytest.mark.parametrize(
    ("files", "options", "because"),
    [
        ({"requirements_txt": "megatron-core==0.17.1\n"}, (), "requirements.txt:1"),
        (
            {"pyproject_toml": '[project]\nname = "x"\ndependencies = ["megatron-core~=0.16.0"]\n'},
            (),
            "pyproject.toml:3",
        ),
        ({}, ("--target-mcore", "0.17"), "named by --target-mcore"),
    ],
    ids=["pin", "compatible release", "target"],
)
def test_for_an_older_megatron_nothing_is_written(
    tmp_path: Path, files: dict[str, str], options: tuple[str, ...], because: str
) -> None:
    top = repository(tmp_path, **files)
    for extra in ((), ("--diff",), ("--unsafe-fixes",)):
        done = migrate(top, *options, *extra)
        said = " ".join((done.out + done.err).split())
        assert done.code == 0
        assert "Nothing to migrate. A Megatron that runs here has no hook." in said
        assert "Not rewritten: it needs megatron-core>=0.18, and the repository runs" in said
        assert because in said
        assert (top / "caller.py").read_bytes() == CALLER
    assert migrate(top, "--target-mcore", "0.18", "--diff").out.count("mcore_unpatch.compat") == 1


def test_a_commit_between_two_releases_may_have_the_hook(tmp_path: Path) -> None:
    commit = "megatron-core @ git+https://github.com/NVIDIA/Megatron-LM@3f6a2ed84\n"
    top = repository(tmp_path, requirements_txt=commit)
    assert "A Megatron that runs here may have no hook." in migrate(top, "--diff").err
    told = " ".join(migrate(top, "--diff", "--target-mcore", "0.18").err.split())
    assert "perhaps older may stop working with this: 3f6a2ed8 (requirements.txt:1)" in told


def test_a_megatron_that_is_not_known_is_not_said_to_lack_the_hook(tmp_path: Path) -> None:
    image = "FROM nvidia/cuda\nRUN pip install git+https://github.com/NVIDIA/Megatron-LM@0123456789abcdef0123\n"
    done = migrate(repository(tmp_path, Dockerfile=image), "--unsafe-fixes")
    assert "Which Megatron runs here is not known." in done.out
    assert "has no hook" not in done.out


@pytest.mark.parametrize("pin", ["megatron-core==0.18.2", "megatron-core>=0.15", "megatron-core", "torch"])
def test_a_release_with_the_hook_and_a_lower_bound_are_not(tmp_path: Path, pin: str) -> None:
    top = repository(tmp_path, requirements_txt=f"{pin}\n")
    done = migrate(top)
    assert done.code == 0
    raised = "are older ones too, raise this: >=0.15 (requirements.txt:1)"
    assert (raised in done.out + done.err) == (pin == "megatron-core>=0.15")
    assert b"mcore_unpatch.compat.verl" in (top / "caller.py").read_bytes()


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
        ("^3.10", True),
        ("~3.11", True),
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
    told = "3.12 for mcore-unpatch[compat], 3.11 for `unpatch` alone (pyproject.toml says Python >=3.10)"
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


def test_what_needs_a_newer_megatron_is_no_promise_and_holds_nothing_else_back(tmp_path: Path) -> None:
    top = repository(tmp_path, requirements_txt="megatron-core==0.17.1\n")
    (top / "newer").mkdir()
    (top / "newer" / "caller.py").write_text("from verl.models.mcore.model_forward_fused import patch_fused_forward\n")
    (top / "newer" / "requirements.txt").write_text("megatron-core==0.18.2\n")
    found = unpatch("scan", "--output-format=json", "--jobs=1", cwd=top).json["findings"]
    assert [(one["path"], one["verdict"], one["fix"]) for one in found] == [
        ("caller.py", "steps", None),
        ("newer/caller.py", "rewrite", "safe"),
    ]
    why = "it needs megatron-core>=0.18, and the repository runs 0.17.1 (requirements.txt:1)."
    assert found[0]["evidence"].endswith(f"Not rewritten: {why}")
    done = migrate(top)
    assert done.code == 0
    assert f"Not rewritten: {why}" in " ".join(done.out.split())
    assert (top / "caller.py").read_bytes() == CALLER
    assert b"mcore_unpatch.compat" in (top / "newer" / "caller.py").read_bytes()
