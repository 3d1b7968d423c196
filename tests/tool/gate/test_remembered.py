"""What was found is remembered by the contents it was found in, in the user's cache folder and nowhere else."""

from pathlib import Path

import pytest
from command import CLEAN, FINDINGS, Result, unpatch, unpatch_process
from repository import Repository

from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.stacks.revision import Revision
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.search import findings_at

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}GPTModel.forward = print\n"
QUIET = f"{IMPORT}GPTModel.forward = len  # unpatch: ignore\n"


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


def test_what_codemods_say_is_not_asked_again(repository: Repository, cache: Path) -> None:
    def scan() -> Result:
        return unpatch("scan", "--output-format", "json", cwd=repository.path)

    check(repository)
    searched = set(cache.iterdir())
    first = scan()
    assert scan() == first
    (completed,) = set(cache.iterdir()) - searched
    completed.write_text(completed.read_text().replace("replaces `GPTModel", "remembers `GPTModel"))
    assert is_remembered(scan())
    repository.write({"base.py": "x = 2\n"})
    assert not is_remembered(scan())


@pytest.mark.parametrize(
    "change",
    [
        {"p.py": PATCH + "\n"},
        {"other.py": "x = 1\n"},
        {"base.py": "x = 2\n"},
        {"fix.patch": "--- a\n"},
        {"pyproject.toml": '[project]\ndependencies = ["megatron-core==0.19.0"]\n'},
        {"settings.yaml": "a: b\n"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_is_seen(change: dict[str, str], repository: Repository, cache: Path) -> None:
    check(repository)
    mark(cache)
    repository.write(change)
    assert not is_remembered(check(repository))


@pytest.mark.parametrize("arguments", [["--select", "MCU6"], ["--target-mcore", "0.17"], ["p.py"]])
def test_other_settings_are_another_question(arguments: list[str], repository: Repository, cache: Path) -> None:
    check(repository)
    mark(cache)
    assert not is_remembered(check(repository, *arguments))


def test_a_change_back(repository: Repository, cache: Path) -> None:
    check(repository)
    mark(cache)
    repository.write({"p.py": "x = 1\n"})
    assert check(repository).code == CLEAN
    repository.write({"p.py": PATCH})
    assert is_remembered(check(repository))


def test_the_base_is_remembered_too(repository: Repository, cache: Path) -> None:
    repository.git("checkout", "--quiet", "-b", "work")
    repository.commit({"q.py": f"{IMPORT}GPTModel.state_dict = print\n"})
    results = [check(repository, "--base", "main", *arguments) for arguments in ((), (), ("--no-cache",))]
    assert len(set(results)) == 1
    assert results[0].code == FINDINGS
    assert len([entry for entry in cache.iterdir() if entry.suffix != ".files"]) == 2


@pytest.mark.parametrize("asked", ["revision", "exclude", "mocks", "release"])
def test_another_question_about_the_base(asked: str, repository: Repository, cache: Path) -> None:
    """Nothing that is remembered of one answers the other, in either order."""
    mock = f"from unittest import mock\n{IMPORT}def test():\n    mock.patch.object(GPTModel, 'forward').start()\n"
    first = repository.commit({"tests/test_a.py": mock, "q.py": QUIET})
    other = repository.commit({"p.py": "x = 1\n", "q.py": "x = 1\n"}) if asked == "revision" else first
    top = repository.path
    stacks = [Stacks(top, (Revision(name, (parse_version(name),)),)) for name in ("0.18.0", "0.12.0")]
    one = (top, [first], stacks[0], False, ())
    two = (top, [other], stacks[asked == "release"], asked == "mocks", ("p.py", "q.py") * (asked == "exclude"))
    for questions in ((one, two), (two, one)):
        for _ in range(2):
            found = [findings_at(*question, cache=True) for question in questions]
            assert found == [findings_at(*question) for question in questions]
            assert asked == "release" or found[0] != found[1]
        for entry in cache.iterdir():
            entry.unlink()


def test_ignore_comments_are_remembered(repository: Repository, cache: Path) -> None:
    repository.git("checkout", "--quiet", "-b", "work")
    repository.commit({"q.py": f"{IMPORT}GPTModel.state_dict = print  # unpatch: ignore\n"})
    results = [check(repository, "--base", "main") for _ in range(2)]
    assert results[0].rules == results[1].rules == ["MCU805"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"findings": [{}], "errors": [], "silenced": []}'])
def test_an_entry_that_is_broken_is_not_believed(text: str, repository: Repository, cache: Path) -> None:
    first = check(repository)
    for entry in cache.iterdir():
        entry.write_text(text)
    assert check(repository) == first


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
