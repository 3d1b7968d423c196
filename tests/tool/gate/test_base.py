"""`check --base REF`: only what is new since the merge base, wherever lines and files have moved."""

import subprocess
from pathlib import Path

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch, unpatch_forked, unpatch_process
from repository import Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
OLD = f"{IMPORT}def fast(self, input_ids): ...\nGPTModel.forward = fast\n"
NEW = f"{IMPORT}def other(self): ...\nGPTModel._postprocess = other\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository whose branch `main` holds one patch; the branch `work` is checked out."""
    made = Repository(tmp_path / "repository")
    made.commit({"pkg/patches.py": OLD, "pkg/plain.py": "x = 1\n"})
    made.git("checkout", "--quiet", "-b", "work")
    return made


def new_targets(repository: Repository, *arguments: str) -> list[str]:
    """What `check --base main` reports, by the last name of each target."""
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = result.json["findings"]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    return [finding["target"].rpartition(".")[2] for finding in found]


def test_nothing_new(repository: Repository) -> None:
    assert unpatch("check", cwd=repository.path).code == FINDINGS
    assert new_targets(repository) == []


def test_moved_lines(repository: Repository) -> None:
    repository.commit({"pkg/patches.py": "# a\n" * 40 + OLD})
    assert new_targets(repository) == []


def test_other_white_space(repository: Repository) -> None:
    repository.commit(
        {"pkg/patches.py": OLD.replace("GPTModel.forward = fast", "if True:\n    GPTModel.forward   =  fast")}
    )
    assert new_targets(repository) == []


def test_renamed_file(repository: Repository) -> None:
    repository.git("mv", "pkg/patches.py", "pkg/renamed.py")
    repository.commit()
    assert new_targets(repository) == []


def test_renamed_file_not_yet_committed(repository: Repository) -> None:
    (repository.path / "pkg/patches.py").rename(repository.path / "pkg/renamed.py")
    assert new_targets(repository) == []


def test_code_moved_to_another_file(repository: Repository) -> None:
    repository.commit({"pkg/patches.py": "x = 1\n", "other/deep/place.py": f"import os\n{OLD}"})
    assert new_targets(repository) == []


def test_new_patch_in_an_old_file(repository: Repository) -> None:
    repository.commit({"pkg/patches.py": OLD + NEW})
    assert new_targets(repository) == ["_postprocess"]


def test_new_patch_in_a_renamed_file(repository: Repository) -> None:
    repository.git("mv", "pkg/patches.py", "pkg/renamed.py")
    repository.commit({"pkg/renamed.py": OLD + NEW})
    assert new_targets(repository) == ["_postprocess"]


def test_new_patch_in_a_file_not_yet_added(repository: Repository) -> None:
    repository.write({"pkg/new.py": NEW})
    assert new_targets(repository) == ["_postprocess"]


def test_the_same_patch_a_second_time(repository: Repository) -> None:
    repository.commit({"pkg/copy.py": OLD})
    assert new_targets(repository) == ["forward"]


@pytest.mark.parametrize("suffix", ["patch", "diff"])
def test_a_patch_file_is_new_until_the_base_has_it(repository: Repository, suffix: str) -> None:
    repository.commit(
        {f"fix.{suffix}": "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n"}
    )
    assert new_targets(repository) == ["utils"]
    repository.git("branch", "--quiet", "--force", "main")
    assert new_targets(repository) == []


def test_a_patch_file_that_is_written_anew(repository: Repository) -> None:
    """Line numbers shift; only the function that is new in it is new."""
    head = "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n"
    hunk = "@@ -{0},2 +{0},3 @@ def {1}(a, b):\n     a\n+    b\n     c\n"
    repository.commit({"fix.patch": head + hunk.format(9, "divide")})
    repository.git("branch", "--quiet", "--force", "main")
    repository.commit({"fix.patch": f"From: A <a@example.org>\n\n{head}{hunk.format(40, 'divide')}"})
    assert new_targets(repository) == []
    repository.commit({"fix.patch": head + hunk.format(50, "divide") + hunk.format(90, "log_single_rank")})
    assert new_targets(repository) == ["log_single_rank"]


def test_the_merge_base_counts_and_not_the_tip(repository: Repository) -> None:
    """What somebody else takes out of main meanwhile is not held against this branch."""
    repository.git("checkout", "--quiet", "main")
    repository.commit({"pkg/patches.py": "x = 1\n"})
    repository.git("checkout", "--quiet", "work")
    assert new_targets(repository) == []


def test_what_main_gained_meanwhile_is_no_excuse(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.commit({"pkg/more.py": NEW})
    repository.git("checkout", "--quiet", "work")
    repository.commit({"pkg/more.py": NEW, "pkg/plain.py": "x = 2\n"})
    assert new_targets(repository) == ["_postprocess"]


def test_only_the_paths_asked_for(repository: Repository) -> None:
    repository.commit({"pkg/new.py": NEW, "lib/new.py": NEW.replace("other", "another")})
    assert new_targets(repository, "lib") == ["_postprocess"]
    assert new_targets(repository, "pkg/plain.py") == []


def test_from_a_folder_below(repository: Repository) -> None:
    repository.commit({"pkg/patches.py": "# moved\n" + OLD, "pkg/new.py": NEW})
    result = unpatch("check", "--base", "main", "--output-format", "json", cwd=repository.path / "pkg")
    assert [finding["path"] for finding in result.json["findings"]] == ["new.py"]


def test_an_ignored_patch_whose_comment_is_gone_is_new(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    quiet = NEW.replace("= other", "= other  # unpatch: ignore")
    repository.commit({"pkg/quiet.py": quiet})
    repository.git("checkout", "--quiet", "-B", "work")
    assert new_targets(repository) == []
    repository.commit({"pkg/quiet.py": NEW})
    assert new_targets(repository) == ["_postprocess"]


def test_an_unused_comment_is_new_once(repository: Repository) -> None:
    repository.commit({"pkg/plain.py": "x = 1  # unpatch: ignore[MCU101]\n"})
    assert new_targets(repository) == [""]
    repository.git("checkout", "--quiet", "-B", "main")
    repository.git("checkout", "--quiet", "-B", "work")
    assert new_targets(repository) == []


@pytest.mark.parametrize("name", ["nowhere", "origin/main", "0000000000000000000000000000000000000000", "--help"])
def test_a_base_git_does_not_know(name: str, repository: Repository) -> None:
    result = unpatch_forked("check", f"--base={name}", cwd=repository.path)
    assert (result.code, result.out) == (ERROR, "")
    assert result.err.startswith("error: git does not know the base")
    assert name in result.err


def test_outside_of_git(tmp_path: Path) -> None:
    result = unpatch("check", "--base", "main", cwd=tmp_path)
    assert result.code == ERROR
    assert "is not in a git work tree" in result.err


def test_unrelated_histories(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "--orphan", "island")
    repository.commit({"a.py": "x = 1\n"})
    result = unpatch("check", "--base", "main", cwd=repository.path)
    assert result.code == ERROR
    assert "no commit in common" in result.err


def test_shallow_clone(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"pkg/plain.py": "x = 2\n"})
    repository.commit({"pkg/plain.py": "x = 3\n"})
    clone = tmp_path / "clone"
    url = repository.path.as_uri()
    subprocess.run(["git", "clone", "--quiet", "--depth=1", "--branch=work", url, str(clone)], check=True)
    result = unpatch("check", "--base", "origin/main", cwd=clone)
    assert result.code == ERROR
    assert "fetch" in result.err
    subprocess.run(
        ["git", "fetch", "--quiet", "--depth=1", "origin", "main:refs/remotes/origin/main"], cwd=clone, check=True
    )
    result = unpatch("check", "--base", "origin/main", cwd=clone)
    assert result.code == ERROR
    assert "fetch more history" in result.err


def test_without_git_installed(repository: Repository, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    result = unpatch_process("check", "--base", "main", cwd=repository.path, env={"PATH": str(empty)})
    assert (result.code, result.out) == (ERROR, "")
    assert "git" in result.err


def test_a_broken_file_at_the_base_does_not_matter(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.commit({"pkg/broken.py": b"import megatron.core\nmegatron.core.x = (\n"})
    repository.git("checkout", "--quiet", "-B", "work")
    repository.commit({"pkg/broken.py": NEW})
    assert new_targets(repository) == ["_postprocess"]


def test_odd_file_names(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.commit({"pkg/naïve file.py": NEW})
    repository.git("checkout", "--quiet", "-B", "work")
    assert new_targets(repository) == []
