"""What git tracks is read, wherever it lies and whatever its name is a link to; a base is one commit."""

import json
import shutil
from pathlib import Path

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch
from repository import Repository

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
OTHER = PATCH.replace("forward", "_postprocess")


def new_in(repository: Repository, *arguments: str) -> list[str]:
    """The files with new findings."""
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = [finding["path"] for finding in result.json["findings"]]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    return found


FOLDERS = ["venv", ".venv", "node_modules", ".tox", "__pycache__", ".nox", ".eggs", ".hypothesis", "__pypackages__"]


@pytest.mark.parametrize("folder", [*FOLDERS, "pkg/venv", "venv/lib/site-packages"])
def test_folders_that_are_otherwise_left_out(folder: str, repository: Repository) -> None:
    repository.commit({f"{folder}/p.py": PATCH})
    assert new_in(repository) == [f"{folder}/p.py"]
    assert new_in(repository, ".") == [f"{folder}/p.py"]
    repository.git("branch", "--quiet", "--force", "main")
    assert new_in(repository) == []  # the base is read the same way


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_not_tracked_there_stays_out(folder: str, repository: Repository) -> None:
    repository.write({f"{folder}/p.py": PATCH})
    assert new_in(repository) == []


def test_an_environment_that_is_committed(repository: Repository) -> None:
    repository.commit({"env/pyvenv.cfg": "home = /\n", "env/lib/p.py": PATCH})
    repository.write({"env/lib/mine.py": PATCH})
    assert new_in(repository) == ["env/lib/p.py"]


@pytest.mark.parametrize(
    ("link", "target"), [("n.py", "real.txt"), ("pkg/n.py", "../data/real"), ("n.py", "m"), ("n.py", "x.patch")]
)
def test_a_link_to_another_name(link: str, target: str, repository: Repository) -> None:
    """Python imports `n.py`, whatever the name of the file that it leads to."""
    files = dict.fromkeys(("real.txt", "data/real", "x.patch"), PATCH)
    repository.write({**files, "pkg/__init__.py": ""})
    (repository.path / "m").symlink_to("real.txt")
    (repository.path / link).symlink_to(target)
    repository.commit()
    assert new_in(repository) == [link]
    repository.git("branch", "--quiet", "--force", "main")
    assert new_in(repository) == []
    repository.commit(dict.fromkeys(files, OTHER))
    assert new_in(repository) == [link]


def test_a_link_to_a_source_file_is_read_once(repository: Repository) -> None:
    repository.write({"real.py": PATCH})
    (repository.path / "n.py").symlink_to("real.py")
    repository.commit()
    assert new_in(repository) == ["real.py"]


@pytest.mark.parametrize("target", ["../outside.txt", "/etc/hostname", ".git/description", "nowhere.txt", "n.py"])
def test_a_link_that_leads_nowhere_is_told(target: str, repository: Repository) -> None:
    (repository.path.parent / "outside.txt").write_text(PATCH)
    (repository.path / "n.py").symlink_to(target)
    repository.commit()
    result = unpatch("check", "--base", "main", cwd=repository.path)
    assert result.code == CLEAN
    assert ("n.py is a link" in result.err) is (target not in {"nowhere.txt", "n.py"})


def test_a_tag_with_the_name_of_the_base(repository: Repository) -> None:
    repository.commit({"p.py": PATCH})
    repository.git("tag", "main", "HEAD")
    repository.git("config", "core.warnAmbiguousRefs", "false")
    result = unpatch("check", "--base", "main", cwd=repository.path)
    assert result.code == ERROR
    assert "'main' is ambiguous" in result.err
    assert "refs/heads/main" in result.err
    repository.git("tag", "--delete", "main")
    assert new_in(repository) == ["p.py"]


@pytest.mark.parametrize("name", ["refs/heads/main", "main^{commit}", "main~0"])
def test_a_full_name_is_never_ambiguous(name: str, repository: Repository) -> None:
    repository.commit({"p.py": PATCH})
    repository.git("tag", "main", "HEAD")
    result = unpatch("check", "--base", name, cwd=repository.path)
    assert result.code == (FINDINGS if name.startswith("refs/") else ERROR)


@pytest.mark.parametrize("name", ["p.PY", "p.pyw"])
def test_other_endings_that_python_runs(name: str, repository: Repository) -> None:
    repository.commit({name: PATCH})
    assert new_in(repository) == [name]


@pytest.mark.parametrize("target", ["../../plain.py", "nowhere", None])
def test_what_only_looks_like_megatrons_source(target: str | None, repository: Repository) -> None:
    """A link or a folder in the place of the file that Megatron is known by."""
    mark = repository.path / "megatron/core/package_info.py"
    repository.write({"megatron/training/p.py": PATCH, "megatron/core/x.txt": ""})
    mark.symlink_to(target) if target else mark.mkdir()
    if target is None:
        (mark / "x.txt").touch()
    repository.commit()
    assert new_in(repository) == ["megatron/training/p.py"]


OTHER_CODE = {
    "x.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": ["%load_ext x\n", *PATCH.splitlines(True)]}]}),
    "tool": f"#!/usr/bin/env python3\n{PATCH}",
    "run.sh": f"python - <<EOF\n{PATCH}EOF\n",
    "Makefile": f"run:\n\tpython -c '{PATCH.strip()}'\n",
    "p.py3": PATCH,
    "compiled.pyc": "\0 megatron.core.models.gpt \0",
    "sync.sh": "rsync -a ours/ $MEGATRON/megatron/core/\n",
    "docker/Dockerfile.cuda": "FROM x\nRUN sed -i s/a/b/ /opt/Megatron-LM/megatron/core/utils.py\n",
}


def test_a_link_to_a_folder_outside_is_told(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/p.py").write_text(PATCH)
    (repository.path / "inside").symlink_to("sub")
    (repository.path / "out").symlink_to(tmp_path / "outside")
    repository.commit({"sub/x.py": "x = 1\n"})
    said = "Links to folders out of the repository are not read: out.\n"
    assert unpatch("check", cwd=repository.path).err.count(said) == 1
    shutil.rmtree(repository.path / ".git")  # without git the folders are walked
    assert unpatch("check", cwd=repository.path).err.count(said) == 1


@pytest.mark.parametrize("name", OTHER_CODE)
def test_code_in_other_files_is_told(name: str, repository: Repository) -> None:
    plain = "python -m megatron.training.train\nfrom megatron.core import utils\n"
    repository.commit({name: OTHER_CODE[name], "plain.sh": plain, "data.json": PATCH})
    said = f"Not read, though code in them may patch Megatron: {name}."
    assert said in unpatch("check", "--base", "main", cwd=repository.path).err


def test_a_sparse_checkout_is_told(repository: Repository) -> None:
    repository.commit({"sub/p.py": PATCH})
    repository.git("sparse-checkout", "set", "--no-cone", "/*", "!/sub/")
    assert "leaves out 1 files, which are not read: sub/p.py" in unpatch("check", cwd=repository.path).err
