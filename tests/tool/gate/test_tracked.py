"""What git tracks is read, wherever it lies and whatever its name is a link to; a base is one commit."""

import json

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch
from repository import Repository

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"


def new_in(repository: Repository, *arguments: str) -> list[str]:
    """The files with new findings."""
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = [finding["path"] for finding in result.json["findings"]]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    return found


FOLDERS = ["venv", ".venv", "node_modules", ".tox", "__pycache__", ".nox", ".eggs", ".hypothesis", "__pypackages__"]


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
    """Python imports `n.py`, whatever it leads to. Of the base no link is followed, so that it always counts as new."""
    files = dict.fromkeys(("real.txt", "data/real", "x.patch"), PATCH)
    repository.write({**files, "pkg/__init__.py": ""})
    (repository.path / "m").symlink_to("real.txt")
    (repository.path / link).symlink_to(target)
    repository.commit()
    assert new_in(repository) == [link]
    repository.git("branch", "--quiet", "--force", "main")
    assert new_in(repository) == [link]


@pytest.mark.parametrize("name", ["refs/heads/main", "main^{commit}", "main~0"])
def test_a_full_name_is_never_ambiguous(name: str, repository: Repository) -> None:
    repository.commit({"p.py": PATCH})
    repository.git("tag", "main", "HEAD")
    result = unpatch("check", "--base", name, cwd=repository.path)
    assert result.code == (FINDINGS if name.startswith("refs/") else ERROR)


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


def test_a_sparse_checkout_is_told(repository: Repository) -> None:
    repository.commit({"sub/p.py": PATCH})
    repository.git("sparse-checkout", "set", "--no-cone", "/*", "!/sub/")
    assert "leaves out 1 files, which are not read: sub/p.py" in unpatch("check", cwd=repository.path).err
