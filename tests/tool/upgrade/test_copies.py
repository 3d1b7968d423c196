"""A copy of Megatron's function and upstream's newer one, and what changed in both."""

import ast
from pathlib import Path

import pytest
from command import CLEAN, unpatch
from downloads import unpacked
from repository import Repository

UPSTREAM = """\
import torch


class GPTModel:
    def {name}(self, hidden{parameter}):
        # upstream's own words
        weight = self.weight()
        logits = {logits}
        scaled = logits * self.scale
        loss = self.loss(scaled)
        return loss
"""
MEGATRON = {"package_info.py": "MAJOR = 0\nMINOR = {}\nPATCH = 0\n", "models/gpt/gpt_model.py": UPSTREAM}
COPY = """\
from megatron.core.models.gpt.gpt_model import GPTModel


def patched(self, hidden):
    # upstream's own words
    weight = self.weight()
    logits = hidden @ weight
    scaled = logits * self.scale
    loss = self.loss(scaled)
    return {result}


GPTModel._postprocess = patched
"""


def megatron(folder: Path, minor: int, **texts: str) -> Path:
    texts = {"name": "_postprocess", "parameter": "", "logits": "hidden @ weight"} | texts
    for name, text in MEGATRON.items():
        path = folder / "megatron" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(minor) if "MINOR" in text else text.format(**texts))
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    megatron(tmp_path / "old", 50)
    made = Repository(tmp_path / "repository")
    made.commit({"patches.py": COPY.format(result="loss + 1")})
    return made


def upgrade(repository: Repository, *arguments: str) -> str:
    sources = repository.path.parent
    result = unpatch(
        "upgrade",
        "--from",
        str(sources / "old"),
        "--to",
        str(sources / "new"),
        *arguments,
        cwd=repository.path,
    )
    assert result.code == CLEAN, result.err
    return result.out + result.err


def test_both_changes_are_shown(repository: Repository) -> None:
    megatron(
        repository.path.parent / "new", 51, logits="torch_matmul(hidden, weight)".replace("torch_matmul", "self.mm")
    )
    shown = upgrade(repository, "--diff")
    assert "-    logits = hidden @ weight\n" in shown
    assert "+    logits = self.mm(hidden, weight)\n" in shown
    assert "+    return loss + 1\n" in shown


def _backport() -> str:
    """megatron-core 0.18.0's own function as a patch."""
    file = unpacked("megatron-core", "0.18.2") / "megatron/core/models/gpt/gpt_model.py"
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    copied = next(node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "_postprocess")
    head = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
    return f"{head}{ast.unparse(copied)}\nGPTModel._postprocess = _postprocess\n"


def test_without_sources_there_is_a_report_that_says_what_is_missing(repository: Repository) -> None:
    new = megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    repository.commit({"patches.py": _backport()})
    result = unpatch("upgrade", "--from", "0.18.0", "--to", str(new), "--diff", cwd=repository.path)
    assert (result.code, "to 0.51.0" in result.out) == (CLEAN, True)
    said = " ".join(result.err.split())
    assert "The source of megatron-core 0.18.0 is missing, so copies are not compared" in said
    assert "add --fetch, or --from PATH." in said


def test_sources_in_the_cache_are_used(repository: Repository, tmp_path: Path) -> None:
    new = megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    repository.commit({"patches.py": _backport()})
    kept = tmp_path / "cache" / "mcore-unpatch" / "megatron-core" / "0.18.0"
    kept.parent.mkdir(parents=True)
    kept.symlink_to(unpacked("megatron-core", "0.18.2"))
    result = unpatch("upgrade", "--from", "0.18.0", "--to", str(new), "--diff", cwd=repository.path)
    assert "missing" not in result.err
    assert "upstream, 0.18.0 to 0.51.0" in result.out
