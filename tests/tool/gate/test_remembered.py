"""What was found is remembered by the contents it was found in, in the user's cache folder and nowhere else."""

from pathlib import Path

import pytest
from command import CLEAN, FINDINGS, Result, unpatch, unpatch_process
from repository import Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}GPTModel.forward = print\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.delenv("MCORE_UNPATCH_NO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mcore-unpatch" / "findings"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(
        {"p.py": PATCH, "base.py": "x = 1\n", "pyproject.toml": '[project]\ndependencies = ["megatron-core==0.18.0"]\n'}
    )
    return made


def check(repository: Repository, *arguments: str) -> Result:
    return unpatch("check", "--output-format", "json", *arguments, cwd=repository.path)


def mark(cache: Path) -> None:
    """Change what is remembered of the whole, so that it can be told."""
    for entry in (one for one in cache.iterdir() if one.suffix != ".files"):
        entry.write_text(entry.read_text().replace("replaces `GPTModel", "remembers `GPTModel"))


def is_remembered(result: Result) -> bool:
    return "remembers" in result.out


def test_the_same_files_are_not_analysed_again(repository: Repository, cache: Path) -> None:
    first = check(repository)
    assert check(repository) == first
    mark(cache)
    assert is_remembered(check(repository))
    assert not is_remembered(check(repository, "--no-cache"))
    assert unpatch("scan", cwd=repository.path).code == CLEAN  # other settings, another entry


@pytest.mark.parametrize("arguments", [["--select", "MCU6"], ["--target-mcore", "0.17"], ["p.py"]])
def test_other_settings_are_another_question(arguments: list[str], repository: Repository, cache: Path) -> None:
    check(repository)
    mark(cache)
    assert not is_remembered(check(repository, *arguments))


def test_ignore_comments_are_remembered(repository: Repository, cache: Path) -> None:
    repository.git("checkout", "--quiet", "-b", "work")
    repository.commit({"q.py": f"{IMPORT}GPTModel.state_dict = print  # unpatch: ignore\n"})
    results = [check(repository, "--base", "main") for _ in range(2)]
    assert results[0].rules == results[1].rules == ["MCU805"]


def test_never_inside_the_repository(repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository.path / "cache"))
    check(repository)
    assert not (repository.path / "cache").exists()
    assert not cache.exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_made(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = unpatch_process(
        "check", cwd=repository.path, env={"XDG_CACHE_HOME": str(tmp_path / "file"), "MCORE_UNPATCH_NO_CACHE": ""}
    )
    assert (result.code, result.err) == (FINDINGS, "")


@pytest.mark.slow
def test_entries_do_not_pile_up(repository: Repository, cache: Path) -> None:
    for number in range(70):
        repository.write({"base.py": f"x = {number}\n"})
        check(repository)
    assert len(list(cache.iterdir())) == 64
