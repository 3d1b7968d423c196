"""A repository's own git configuration names programs: none of them is run by any command, and nothing is fetched."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from command import CLEAN, ERROR, FINDINGS, Result, unpatch, unpatch_process
from repository import GIT, Repository

from mcore_unpatch.repository import git

# One that `migrate` writes to.
PATCH = """from verl.models.mcore.mtp_patch import patch_postprocess


def prepare(model):
    patch_postprocess(model)
"""
COMMANDS = (
    ("scan",),
    ("check",),
    ("check", "--base", "main"),
    ("migrate", "--diff"),
    ("migrate",),  # writes
    ("undo",),
)
# Keys that name a program and that `git help --config` leaves out.
UNLISTED = ("filter.<driver>.process", "trailer.<token>.cmd", "submodule.<name>.update", "lfs.extension.<name>.clean")
NAMES_A_PROGRAM = re.compile(
    r"alias|askpass|browser|clean|cmd|command|driver|editor|exec|external|fsmonitor|helper|hook|include|pager|pack|path"
    r"|process|program|proxy|smudge|ssh|textconv|tool|update|url|vcs",
    re.IGNORECASE,
)
# These say what kind of repository it is, or where: git would refuse it, and nothing would be tried.
NOT_TRIED = re.compile(r"^(core\.(worktree|bare|repositoryformatversion|packed.*|commitgraph)|extensions\..*)$", re.I)


class Canary:
    """A program that leaves a trace when somebody runs it, and a folder of hooks that all are that program."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.traces, self.program, self.hooks = folder / "traces", folder / "sing", folder / "hooks"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.traces}\nexit 1\n')
        self.program.chmod(0o755)
        self.hooks.mkdir()
        for name in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout"):
            (self.hooks / name).symlink_to(self.program)

    @property
    def sang(self) -> str:
        """What was run since the last question."""
        text = self.traces.read_text() if self.traces.exists() else ""
        self.traces.unlink(missing_ok=True)
        return text


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.fixture
def hostile(tmp_path: Path) -> Repository:
    """A repository whose attributes send every file through the driver `canary`."""
    made = Repository(tmp_path / "hostile")
    attributes = "* filter=canary diff=canary merge=canary\nodd.py filter=a=b\n"
    made.commit({".gitattributes": attributes, "pkg/patches.py": PATCH, "odd.py": "x = 1\n"})
    made.git("checkout", "--quiet", "-b", "work")
    made.commit({"pkg/more.py": PATCH.replace("forward", "_postprocess").replace("fast", "other")})
    return made


def run(*arguments: str | Path, cwd: Path) -> Result:
    return unpatch(*arguments, cwd=cwd, env=GIT)


def provoke(repository: Repository) -> None:
    """What plain git does with it, whatever comes of it."""
    (repository.path / "odd.py").touch()
    (repository.path / "pkg/patches.py").touch()
    for command in (["status"], ["ls-files", "-o"], ["diff", "main"], ["fetch", "origin"]):
        subprocess.run(["git", *command], cwd=repository.path, env={**os.environ, **GIT}, capture_output=True)
    (repository.path / "odd.py").touch()
    (repository.path / "pkg/patches.py").touch()


def check_silent(repository: Repository, canary: Canary) -> None:
    """Plain git runs the program, no command of ours does; and each does its work."""
    provoke(repository)
    assert canary.sang, "the trap does not work"
    results = [run(*command, cwd=repository.path) for command in COMMANDS]
    codes = [result.code for result in results]
    assert canary.sang == ""
    assert codes == [CLEAN, FINDINGS, FINDINGS, CLEAN, CLEAN, CLEAN], results[-2].err


@pytest.mark.parametrize("value", ["program", "hook"])
def test_fsmonitor(value: str, hostile: Repository, canary: Canary) -> None:
    name = canary.program if value == "program" else canary.hooks / "fsmonitor-watchman"
    hostile.git("config", "core.fsmonitor", str(name))
    check_silent(hostile, canary)


def test_hooks(hostile: Repository, canary: Canary) -> None:
    hostile.git("config", "core.hooksPath", str(canary.hooks))
    check_silent(hostile, canary)


@pytest.mark.parametrize("driver", ["canary", "a=b"])
@pytest.mark.parametrize("kind", ["clean", "process"])
def test_filters(kind: str, driver: str, hostile: Repository, canary: Canary) -> None:
    hostile.git("config", f"filter.{driver}.{kind}", str(canary.program))
    hostile.git("config", f"filter.{driver}.required", "true")
    check_silent(hostile, canary)


def test_filters_of_an_included_file(hostile: Repository, canary: Canary) -> None:
    (hostile.path / ".git/more").write_text(f'[filter "canary"]\n\tclean = {canary.program}\n')
    hostile.git("config", "include.path", "more")
    check_silent(hostile, canary)


@pytest.mark.parametrize("how", ["uploadpack", "ssh", "ext", "helper"])
def test_a_promisor_remote(how: str, tmp_path: Path, canary: Canary) -> None:
    """A partial clone fetches what it lacks when it is asked for it, by whatever program its configuration names."""
    origin = Repository(tmp_path / "origin")
    origin.commit({"pkg/patches.py": PATCH})
    origin.git("checkout", "--quiet", "-b", "work")
    origin.commit({"pkg/patches.py": f"# changed\n{PATCH}"})
    origin.git("config", "uploadpack.allowFilter", "true")
    path = tmp_path / "clone"
    origin.git("clone", "--quiet", "--filter=blob:none", "--branch=work", origin.path.as_uri(), str(path))
    clone = Repository(path)
    clone.git("branch", "main", "origin/main")
    settings = {
        "uploadpack": {"remote.origin.uploadpack": str(canary.program)},
        "ssh": {"remote.origin.url": "ssh://example.org/x", "core.sshCommand": str(canary.program)},
        "ext": {"remote.origin.url": f"ext::{canary.program}", "protocol.ext.allow": "always"},
        "helper": {"remote.origin.vcs": "ext", "remote.origin.url": str(canary.program), "protocol.allow": "always"},
    }[how]
    for key, value in settings.items():
        clone.git("config", key, value)
    provoke(clone)
    assert canary.sang, "the trap does not work"
    results = [run(*command, cwd=clone.path) for command in COMMANDS]
    assert canary.sang == ""
    assert [result.code for result in results] == [CLEAN, FINDINGS, ERROR, CLEAN, CLEAN, CLEAN]
    assert results[2].err == f"error: {git.PARTIAL_CLONE}\n"


def test_a_tracked_folder_shaped_like_a_bare_repository(tmp_path: Path, canary: Canary) -> None:
    outer = Repository(tmp_path / "outer")
    inner = outer.path / "fixtures/r"
    outer.git("init", "--quiet", "--bare", str(inner))
    outer.write({"fixtures/r/patches.py": PATCH})
    outer.git("--git-dir", str(inner), "--work-tree", str(inner), "add", str(inner / "patches.py"))
    (inner / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = {canary.program}\n"
    )
    (inner / "refs/keep").write_text("")
    outer.commit()
    subprocess.run(["git", "status"], cwd=inner, env={**os.environ, **GIT}, capture_output=True)
    assert canary.sang, "the trap does not work"
    outer.commit()  # git has written the inner index
    for folder, named in ((outer.path, inner), (inner, Path())):
        outer.commit({"fixtures/r/patches.py": PATCH})  # the other round has migrated it
        for command in ("scan", "check", "migrate"):
            result = run(command, named, cwd=folder)
            assert result.code == (FINDINGS if command == "check" else CLEAN), result.err
    assert git.work_tree(inner) == outer.path.resolve()
    assert canary.sang == ""


def known_keys() -> list[str]:
    """Every key of git's own documentation that may name a program."""
    listed = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout.split()
    keys = [key for key in (*listed, *UNLISTED) if NAMES_A_PROGRAM.search(key) and not NOT_TRIED.match(key)]
    assert {"core.fsmonitor", "core.sshCommand", "diff.external", "gpg.program", "core.pager"} <= set(keys)
    return keys


@pytest.mark.slow
def test_every_key_that_can_name_a_program(hostile: Repository, canary: Canary) -> None:
    """All at once: were one of them run, the trace would say by what."""
    names = {"<driver>": "canary", "<name>": "origin", "*": "status", "<cmd>": "ls-files", "<command>": "ls-files"}
    tried = 0
    for key in known_keys():
        for placeholder, name in names.items():
            key = key.replace(placeholder, name)
        key = re.sub(r"<[^>]*>", "canary", key)
        value = str(canary.hooks if key == "core.hooksPath" else canary.program)
        value = f"!{value}" if key.startswith("alias") else f"ext::{value}" if key.endswith(".url") else value
        accepted = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-c", f"{key}={value}", "status"],
            cwd=hostile.path,
            env={**os.environ, **GIT},
            capture_output=True,
        )
        if not accepted.returncode and key not in ("include.path", "core.excludesFile"):
            hostile.git("config", key, value)
            tried += 1
    assert tried > 80
    check_silent(hostile, canary)


def test_another_work_tree_than_its_own(hostile: Repository, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "mine.py").write_text(PATCH)
    for place in (str(victim), str(tmp_path)):
        hostile.git("config", "core.worktree", place)
        assert git.toplevel(hostile.path) is None
        result = run("scan", "--output-format", "json", cwd=hostile.path)
        assert {finding["path"] for finding in result.json["findings"]} == {"pkg/more.py", "pkg/patches.py"}
        assert run("migrate", cwd=hostile.path).code == ERROR
    assert (victim / "mine.py").read_text() == PATCH


@pytest.mark.slow
def test_git_is_never_taken_from_the_current_folder(hostile: Repository, canary: Canary) -> None:
    shutil.copy(canary.program, hostile.path / "git")
    for path in (f".:{os.environ['PATH']}", f":{os.environ['PATH']}", "pkg:."):
        result = unpatch_process("scan", cwd=hostile.path, env={**GIT, "PATH": path})
        assert result.code == CLEAN
    assert canary.sang == ""


@pytest.mark.parametrize(
    "place", [".gitignore", "pkg/.gitignore", "objects/.gitignore", ".git/config", ".git/index", ".git/info/exclude"]
)
def test_a_pipe_that_git_would_wait_for(place: str, hostile: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_PATIENCE", 0.3)
    (hostile.path / place).parent.mkdir(exist_ok=True)
    (hostile.path / place).unlink(missing_ok=True)
    os.mkfifo(hostile.path / place)
    with pytest.raises(git.GitError, match=f"{re.escape(place)} is not a regular file"):
        git.listed_files(hostile.path, git.work_tree(hostile.path))
