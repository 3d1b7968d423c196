"""Which files are looked at: .gitignore by git's own rules, no environments, no caches, no symlink out of the root."""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from checking import write_files
from command import CLEAN, unpatch, unpatch_process
from repository import Repository

from mcore_unpatch.repository.discover import discover, listed

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"


def paths(folder: Path, *arguments: str | Path) -> list[str]:
    """The files with findings."""
    report = unpatch("scan", "--output-format", "json", *arguments, cwd=folder).json
    assert report["errors"] == []
    return [finding["path"] for finding in report["findings"]]


class TestGitignore:
    IGNORED: ClassVar = {
        ".gitignore": "/generated\n*_gen.py\n!keep_gen.py\n",
        "generated/a.py": PATCH,
        "pkg/generated/b.py": PATCH,
        "pkg/c_gen.py": PATCH,
        "pkg/keep_gen.py": PATCH,
        "pkg/.gitignore": "d.py\n",
        "pkg/d.py": PATCH,
        "d.py": PATCH,
    }
    SEEN: ClassVar = ["d.py", "pkg/generated/b.py", "pkg/keep_gen.py"]

    def test_inside_git(self, tmp_path: Path) -> None:
        Repository(tmp_path).write(self.IGNORED)
        assert paths(tmp_path) == self.SEEN

    def test_outside_of_git(self, tmp_path: Path) -> None:
        write_files(tmp_path, self.IGNORED)
        assert paths(tmp_path) == self.SEEN

    def test_from_a_folder_below(self, tmp_path: Path) -> None:
        Repository(tmp_path).write(self.IGNORED)
        assert paths(tmp_path / "pkg") == ["generated/b.py", "keep_gen.py"]

    def test_a_tracked_file_is_seen_though_a_rule_names_it(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.write(self.IGNORED)
        repository.git("add", "--force", "pkg/c_gen.py")
        assert "pkg/c_gen.py" in paths(tmp_path)

    def test_an_ignored_file_that_is_named_is_scanned(self, tmp_path: Path) -> None:
        Repository(tmp_path).write(self.IGNORED)
        assert paths(tmp_path, "pkg/c_gen.py") == ["c_gen.py"]

    def test_an_ignored_folder_that_is_named_is_scanned(self, tmp_path: Path) -> None:
        Repository(tmp_path).write(self.IGNORED)
        assert paths(tmp_path, "generated") == ["a.py"]

    @pytest.mark.slow
    def test_without_git_installed(self, tmp_path: Path) -> None:
        write_files(tmp_path, {".gitignore": "a.py\n", "a.py": PATCH, "b.py": PATCH})
        empty = tmp_path / "bin"
        empty.mkdir()
        result = unpatch_process("scan", "--output-format", "json", cwd=tmp_path, env={"PATH": str(empty)})
        assert result.code == CLEAN
        assert [f["path"] for f in result.json["findings"]] == ["a.py", "b.py"]
        assert "git is not installed, so .gitignore is not applied" in result.err

    def test_nothing_is_left_behind(self, tmp_path: Path) -> None:
        write_files(tmp_path, self.IGNORED)
        before = sorted(tmp_path.rglob("*"))
        paths(tmp_path)
        assert sorted(tmp_path.rglob("*")) == before


class TestRepositories:
    def test_untracked_files_are_seen(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.commit({"a.py": PATCH})
        repository.write({"b.py": PATCH})
        assert paths(tmp_path) == ["a.py", "b.py"]

    def test_tracked_files_that_are_deleted(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.commit({"a.py": PATCH, "b.py": PATCH, "c.patch": "x\n"})
        (tmp_path / "a.py").unlink()
        (tmp_path / "c.patch").unlink()
        result = unpatch("scan", "--output-format", "json", cwd=tmp_path)
        assert (result.code, result.err) == (CLEAN, "")
        assert [f["path"] for f in result.json["findings"]] == ["b.py"]

    def test_submodules_are_named_and_not_scanned(self, tmp_path: Path) -> None:
        inner = Repository(tmp_path / "inner")
        inner.commit({"x.py": PATCH})
        outer = Repository(tmp_path / "outer")
        outer.commit({"a.py": PATCH})
        allow = "protocol.file.allow=always"
        outer.git("-c", allow, "submodule", "--quiet", "add", str(inner.path), "third_party/inner")
        result = unpatch("scan", "--output-format", "json", cwd=outer.path)
        assert [f["path"] for f in result.json["findings"]] == ["a.py"]
        assert "Nested repositories are not scanned: third_party/inner." in " ".join(result.err.split())

    def test_a_repository_inside_another(self, tmp_path: Path) -> None:
        Repository(tmp_path).commit({"a.py": PATCH})
        Repository(tmp_path / "nested").commit({"b.py": PATCH})
        result = unpatch("scan", "--output-format", "json", cwd=tmp_path)
        assert [f["path"] for f in result.json["findings"]] == ["a.py"]
        assert "nested" in result.err

    def test_a_git_folder_that_is_broken(self, tmp_path: Path) -> None:
        write_files(tmp_path, {".git": "gitdir: /nowhere\n", "a.py": PATCH})
        assert paths(tmp_path) == ["a.py"]

    def test_a_bare_git_file_list_of_thousands(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.commit({f"d{n % 20}/m{n}.py": "x = 1\n" for n in range(2000)} | {"a.py": PATCH})
        report = unpatch("scan", "--output-format", "json", cwd=tmp_path).json
        assert (report["files_scanned"], len(report["findings"])) == (2001, 1)


def test_the_order_of_the_paths_changes_nothing(tmp_path: Path) -> None:
    names = ["b/a.py", "a/b.py", "b.py", "a.patch", "b/z.diff", "a/z.patch"]
    write_files(tmp_path, {name: PATCH if name.endswith(".py") else "--- a/x\n+++ b/x\n" for name in names})
    every = [tmp_path / name for name in names]
    seen = [discover(order) for order in (every, every[::-1], [tmp_path], [tmp_path / "b", *every, tmp_path / "a"])]
    assert {(tuple(one.python), tuple(one.patches)) for one in seen} == {
        (("a/b.py", "b.py", "b/a.py"), ("a.patch", "a/z.patch", "b/z.diff"))
    }


class TestLeftOut:
    @pytest.mark.parametrize(
        "folder", [".venv", "venv", ".tox", "__pycache__", "node_modules", ".mypy_cache", ".git", ".eggs"]
    )
    def test_environments_and_caches(self, folder: str, tmp_path: Path) -> None:
        write_files(tmp_path, {f"{folder}/lib/a.py": PATCH, f"pkg/{folder}/b.py": PATCH, "c.py": PATCH})
        assert paths(tmp_path) == ["c.py"]

    def test_an_environment_by_any_name(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"env/pyvenv.cfg": "home = /\n", "env/lib/site-packages/a.py": PATCH, "b.py": PATCH})
        assert paths(tmp_path) == ["b.py"]

    def test_what_is_tracked_is_not(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.commit({"node_modules/a.py": PATCH, "env/pyvenv.cfg": "home = /\n", "env/b.py": PATCH})
        repository.write({"node_modules/untracked.py": PATCH, "env/untracked.py": PATCH})
        assert paths(tmp_path) == ["env/b.py", "node_modules/a.py"]

    def test_other_files(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"a.txt": PATCH, "b.pyc": PATCH, "c.ipynb": PATCH, "d.pyx": PATCH, "e.py": PATCH})
        assert paths(tmp_path) == ["e.py"]

    def test_megatrons_own_source(self, tmp_path: Path) -> None:
        write_files(
            tmp_path,
            {
                "third_party/megatron/core/package_info.py": "VERSION = 1\n",
                "third_party/megatron/core/models/gpt/x.py": PATCH,
                "third_party/megatron/training/y.py": PATCH,
                "third_party/ours.py": PATCH,
            },
        )
        assert paths(tmp_path) == ["third_party/ours.py"]


class TestSymlinks:
    @pytest.fixture(params=["git", "plain"])
    def project(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        folder = tmp_path / "project"
        if request.param == "git":
            Repository(folder)
        write_files(folder, {"pkg/a.py": PATCH})
        return folder

    def test_out_of_the_root(self, project: Path) -> None:
        outside = project.parent / "outside"
        write_files(outside, {"b.py": PATCH})
        (project / "link").symlink_to(outside)
        (project / "c.py").symlink_to(outside / "b.py")
        assert paths(project) == ["pkg/a.py"]

    def test_loop(self, project: Path) -> None:
        (project / "pkg/loop").symlink_to(project)
        (project / "self.py").symlink_to("self.py")
        assert paths(project) == ["pkg/a.py"]

    def test_dangling(self, project: Path) -> None:
        (project / "gone.py").symlink_to("nowhere.py")
        assert paths(project) == ["pkg/a.py"]

    def test_a_link_that_is_named_is_followed(self, project: Path) -> None:
        (project.parent / "link").symlink_to(project)
        assert paths(project.parent, "link") == ["pkg/a.py"]

    def test_a_loop_that_is_named(self, project: Path) -> None:
        (project / "self").symlink_to("self")
        result = unpatch("scan", "self", cwd=project)
        assert result.code == 2
        assert "self" in result.err


@pytest.mark.slow
def test_no_git_at_all_is_no_error(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed: every other test says it")
    write_files(tmp_path, {"a.py": PATCH})
    empty = tmp_path / "bin"
    empty.mkdir()
    result = unpatch_process("scan", "--output-format", "json", cwd=tmp_path, env={"PATH": str(empty)})
    assert (result.code, result.err) == (CLEAN, "")


@pytest.mark.parametrize("under_git", [True, False])
def test_files_come_in_order_whatever_is_named_first(under_git: bool, tmp_path: Path) -> None:
    files = dict.fromkeys(("b/x.py", "a/y.py", "a/x.py", "b/2.patch", "a/1.patch", "pyproject.toml"), "")
    if under_git:
        Repository(tmp_path).commit(files)
    else:
        write_files(tmp_path, files)
    for named in (["b", "a"], ["a", "b"], ["b/x.py", "a", "b"], ["."]):
        found = discover([tmp_path / name for name in named])
        assert found.python == ["a/x.py", "a/y.py", "b/x.py"]
        assert found.patches == ["a/1.patch", "b/2.patch"]


def test_environments_and_caches_outside_of_git(tmp_path: Path) -> None:
    skipped = ("py312/lib/a.py", "__pycache__/a.py", "node_modules/a.py", ".git/a.py")
    write_files(tmp_path, {**dict.fromkeys(skipped, PATCH), "py312/pyvenv.cfg": "", "lib/a.py": PATCH, "a.py": PATCH})
    assert discover([tmp_path]).python == ["a.py", "lib/a.py"]
    assert sorted(listed(tmp_path)) == ["a.py", "lib/a.py"]  # what an environment requires is not the project's
