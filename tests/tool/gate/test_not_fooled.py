"""The gate sees the same on both sides, says why it cannot look, and tells of an exclude that matches nothing."""

import os
from pathlib import Path

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch, unpatch_forked
from repository import GIT, Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}def fast(self, input_ids): ...\nGPTModel.forward = fast\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A branch `main` with one patch outside of `src`; the branch `work` is checked out."""
    made = Repository(tmp_path / "repository")
    made.commit({"lib/patches.py": PATCH, "src/plain.py": "x = 1\n"})
    made.git("checkout", "--quiet", "-b", "work")
    return made


def new_in(repository: Repository, *arguments: str) -> list[str]:
    """The files with new findings."""
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = result.json["findings"]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    return [str(Path(result.json["root"], one["path"]).relative_to(repository.path)) for one in found]


@pytest.mark.parametrize(
    "arguments", [["src"], ["src/copy.py"], ["src/copy.py", "src/plain.py"], [".", "--exclude", "lib"], []]
)
def test_a_copy_is_no_move(arguments: list[str], repository: Repository) -> None:
    """As pre-commit calls it, with the names of changed files, too."""
    repository.commit({"src/copy.py": PATCH})
    assert new_in(repository, *arguments) == ["src/copy.py"]


def test_an_empty_base_is_an_error(repository: Repository) -> None:
    result = unpatch("check", "--base", "", cwd=repository.path)
    assert (result.code, "--base is empty" in result.err) == (ERROR, True)


@pytest.mark.parametrize("arguments", [["src"], ["src/moved.py"], []])
def test_a_move_is_no_copy(arguments: list[str], repository: Repository) -> None:
    repository.git("rm", "--quiet", "lib/patches.py")
    repository.commit({"src/moved.py": PATCH})
    assert new_in(repository, *arguments) == []


def test_what_was_excluded_pays_for_nothing(repository: Repository) -> None:
    repository.git("rm", "--quiet", "lib/patches.py")
    repository.commit({"src/moved.py": PATCH})
    assert new_in(repository, "--exclude", "lib") == ["src/moved.py"]
    repository.write({"pyproject.toml": '[tool.unpatch]\nexclude = ["lib"]\n'})
    assert new_in(repository, "src", "--ignore", "MCU805") == ["src/moved.py"]


@pytest.mark.parametrize("place", ["third_party/megatron/core/x.py", "third_party/megatron/training/x.py"])
def test_what_no_scan_sees_pays_for_nothing(place: str, repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    mark = {"third_party/megatron/core/package_info.py": ""}
    repository.commit({place: PATCH, **mark, "lib/patches.py": "x = 1\n"})
    repository.git("checkout", "--quiet", "-B", "work")
    repository.git("rm", "--quiet", place)
    repository.commit({"src/copy.py": PATCH})
    assert new_in(repository) == ["src/copy.py"]


def test_errors_elsewhere_are_not_ours(repository: Repository) -> None:
    repository.commit({"lib/broken.py": b"import megatron.core\n(\n"})
    assert new_in(repository, "src") == []
    assert unpatch("check", "--base", "main", cwd=repository.path).code == ERROR


@pytest.mark.slow
@pytest.mark.parametrize("where", ["src", "."])
def test_inside_a_hook(where: str, repository: Repository) -> None:
    """Git tells its hooks where it is, relative to where they stand."""
    repository.commit({"src/copy.py": PATCH})
    env = {**GIT, "GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index"}
    result = unpatch_forked("check", "--base", "main", where, "--output-format", "json", cwd=repository.path, env=env)
    assert [Path(one["path"]).name for one in result.json["findings"]] == ["copy.py"]


class TestInWords:
    def test_a_bare_repository(self, repository: Repository, tmp_path: Path) -> None:
        repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        result = unpatch_forked("check", "--base", "main", cwd=tmp_path / "bare.git", env=GIT)
        assert (result.code, result.out) == (ERROR, "")
        assert result.err == f"error: {tmp_path}/bare.git is a bare repository: run this in a work tree of it\n"

    @pytest.mark.slow
    def test_dubious_ownership(self, repository: Repository) -> None:
        if os.geteuid() == 0:
            for path in (repository.path, repository.path / ".git"):
                os.chown(path, 12345, 12345)
        env = {**GIT, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "SUDO_UID": ""}
        result = unpatch_forked("check", "--base", "main", cwd=repository.path, env=env)
        assert (result.code, result.out) == (ERROR, "")
        assert result.err == (
            f"error: git does not trust {repository.path}, which belongs to another user: "
            f"if you do, run `git config --global --add safe.directory {repository.path}`\n"
        )
        assert unpatch_forked("scan", cwd=repository.path, env=env).code == CLEAN

    def test_a_shallow_clone(self, repository: Repository, tmp_path: Path) -> None:
        repository.commit({"src/plain.py": "x = 2\n"})
        clone = tmp_path / "clone"
        repository.git("clone", "--quiet", "--depth=1", "--branch=work", repository.path.as_uri(), str(clone))
        result = unpatch_forked("check", "--base", "origin/main", cwd=clone, env=GIT)
        assert (result.code, result.out) == (ERROR, "")
        assert result.err == (
            "error: git does not know the base 'origin/main': this clone is shallow, run `git fetch --unshallow`\n"
        )


class TestExclude:
    def notes(self, repository: Repository, *arguments: str) -> str:
        return unpatch("check", *arguments, cwd=repository.path).err

    def test_what_matches_nothing_is_told(self, repository: Repository) -> None:
        told = self.notes(repository, "--exclude", "third_party", "--exclude", "lib", "--exclude", "*.pyi")
        assert [line.split()[2] for line in told.splitlines()] == ["'third_party'", "'*.pyi'"]

    @pytest.mark.parametrize("pattern", ["lib", "lib/", "lib/*", "*/patches.py", "src/plain.py", "ignored", "docs.txt"])
    def test_what_matches_something_is_not(self, pattern: str, repository: Repository) -> None:
        repository.write({".gitignore": "ignored\n", "ignored/x.py": "x = 1\n", "docs.txt": "x\n"})
        assert "exclude" not in self.notes(repository, "--exclude", pattern)

    def test_a_part_cannot_tell(self, repository: Repository) -> None:
        """The configuration speaks of the whole repository."""
        repository.write({"pyproject.toml": '[tool.unpatch]\nexclude = ["lib", "nothing"]\n'})
        assert "exclude" not in self.notes(repository, "src")
        assert "exclude" not in self.notes(repository, "src/plain.py")
        assert "exclude 'nothing' matches nothing" in self.notes(repository)
