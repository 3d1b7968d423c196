"""A copy of Megatron's function and upstream's newer one, three-way."""

import ast
from pathlib import Path

import pytest
from command import CLEAN, ERROR, unpatch
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


def test_both_changes_are_shown_and_merged_and_taken_back(repository: Repository) -> None:
    megatron(
        repository.path.parent / "new", 51, logits="torch_matmul(hidden, weight)".replace("torch_matmul", "self.mm")
    )
    shown = upgrade(repository, "--diff")
    assert "-    logits = hidden @ weight\n" in shown
    assert "+    logits = self.mm(hidden, weight)\n" in shown
    assert "+    return loss + 1\n" in shown
    assert "no conflict" in shown
    before = (repository.path / "patches.py").read_text()
    assert "into 1 copy" in upgrade(repository, "--write")
    after = (repository.path / "patches.py").read_text()
    assert after == before.replace("hidden @ weight", "self.mm(hidden, weight)")
    assert unpatch("undo", cwd=repository.path).code == CLEAN
    assert (repository.path / "patches.py").read_text() == before


def test_a_conflict_is_left_alone(repository: Repository) -> None:
    repository.commit({"patches.py": COPY.format(result="loss").replace("hidden @ weight", "hidden.float() @ weight")})
    megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    before = (repository.path / "patches.py").read_text()
    assert "1 conflict; merge by hand" in upgrade(repository, "--diff")
    assert "1 copy has conflicts; --conflict-markers writes them" in upgrade(repository, "--write")
    assert (repository.path / "patches.py").read_text() == before


def test_a_conflict_is_written_as_git_does_where_that_is_asked_for(repository: Repository) -> None:
    repository.commit({"patches.py": COPY.format(result="loss").replace("hidden @ weight", "hidden.float() @ weight")})
    megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    said = upgrade(repository, "--write", "--conflict-markers")
    assert "Wrote 1 copy with conflicts to resolve. `unpatch undo` reverts it." in said
    text = (repository.path / "patches.py").read_text()
    assert "\n<<<<<<< yours\n    logits = hidden.float() @ weight\n|||||||" in text
    assert "\n=======\n    logits = self.mm(hidden, weight)\n>>>>>>> upstream\n" in text
    assert unpatch("undo", cwd=repository.path).code == CLEAN
    assert "<<<<<<<" not in (repository.path / "patches.py").read_text()


def test_what_the_merged_copy_needs_is_imported(repository: Repository) -> None:
    megatron(repository.path.parent / "new", 51, logits="torch.matmul(hidden, weight)")
    assert "adds 1 import" in " ".join(upgrade(repository, "--diff").split())
    upgrade(repository, "--write")
    text = (repository.path / "patches.py").read_text()
    assert "import GPTModel\nimport torch\n" in text
    assert "logits = torch.matmul(hidden, weight)" in text


def test_a_name_that_no_import_gives_is_said_and_not_written(repository: Repository) -> None:
    megatron(repository.path.parent / "new", 51, logits="unheard_of(hidden, weight)")
    assert "lacks `unheard_of`" in " ".join(upgrade(repository, "--diff").split())
    upgrade(repository, "--write")
    assert repository.git("status", "--porcelain") == ""


def test_a_copy_that_only_looks_different_takes_upstreams_text(repository: Repository) -> None:
    looks = (
        COPY.format(result="loss")
        .replace("(self, hidden)", "(self, hidden: int) -> int")
        .replace("upstream's own words", "ours")
    )
    repository.commit({"patches.py": looks})
    megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    upgrade(repository, "--write")
    assert (
        "# upstream's own words\n    weight = self.weight()\n    logits = self.mm"
        in (repository.path / "patches.py").read_text()
    )


def test_uncommitted_work_is_refused(repository: Repository) -> None:
    megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    repository.write({"patches.py": COPY.format(result="loss + 2")})
    sources = repository.path.parent
    result = unpatch(
        "upgrade",
        "--from",
        str(sources / "old"),
        "--to",
        str(sources / "new"),
        "--write",
        cwd=repository.path,
    )
    assert (result.code, "patches.py" in result.err) == (ERROR, True)
    assert "loss + 2" in (repository.path / "patches.py").read_text()


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
    assert "add --download, or --from PATH." in said


@pytest.mark.parametrize("release", ["0.18.0", "0.18.2"])
def test_sources_in_the_cache_are_used(release: str, repository: Repository, tmp_path: Path) -> None:
    """The release itself, or another patch release of its minor version, which is said."""
    new = megatron(repository.path.parent / "new", 51, logits="self.mm(hidden, weight)")
    repository.commit({"patches.py": _backport()})
    kept = tmp_path / "cache" / "mcore-unpatch" / "megatron-core" / release
    kept.parent.mkdir(parents=True)
    kept.symlink_to(unpacked("megatron-core", "0.18.2"))
    result = unpatch("upgrade", "--from", "0.18.0", "--to", str(new), "--diff", cwd=repository.path)
    assert "missing" not in result.err
    assert ("0.18.0 is not at hand: 0.18.2 stands for it" in result.err) == (release == "0.18.2")
    assert "upstream, 0.18.0 to 0.51.0" in result.out
