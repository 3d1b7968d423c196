"""Every question put to git, in a way that leaves the repository no say: nothing it configures is run or fetched.

A repository that came from elsewhere brings its own `.git/config`. What of it could start a program under the commands
used here is switched off on the command line; work tree files are hashed with all filters off; no transport is allowed.
Only a commit that the user asks for runs the hooks. The configuration and the environment of the user stay in force.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from mcore_unpatch.errors import UsageError

_SETTINGS = {
    "advice.graftFileDeprecated": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",  # a forged one could hide files
    "core.warnAmbiguousRefs": "true",
    "safe.bareRepository": "explicit",
}
_ENVIRONMENT = {
    "GIT_GRAFT_FILE": os.devnull,  # parents that the commits do not have
    "GIT_ALLOW_PROTOCOL": "none",  # whatever wants to fetch (a promisor remote does) finds no way to
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",  # messages as `_in_words` knows them
}
PARTIAL_CLONE = "files of the base are missing in this partial clone: run `git fetch --refetch --no-filter` first"
_PATIENCE = 2.0  # seconds until we look for what git may be waiting for


class GitError(UsageError):
    """Git is missing or said no."""


class Ambiguous(GitError):
    """A name that a branch and a tag share, say: git would take one of them."""


def run(
    folder: Path,
    *arguments: str,
    stdin: bytes | None = None,
    settings: dict[str, str] | None = None,
    codes: Container[int] = (0,),
    complaints: list[str] | None = None,
    apart: bool = False,
) -> bytes:
    """The standard output of `git -C folder ...`; raises `GitError` for an exit code that is not among `codes`.

    `complaints` takes what git says on stderr; `apart` is for a folder that belongs to no repository.
    """
    options = [option for key, value in _SETTINGS.items() for option in ("-c", f"{key}={value}")]
    command = [_executable(), *options, "-C", str(folder), *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(settings or {}, folder if apart else None),
    ) as process:
        try:
            output, errors = process.communicate(stdin, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            if (culprit := next(_endless_files(folder), None)) is not None:
                process.kill()
                raise GitError(f"{culprit} is not a regular file, and git would wait for it for ever") from None
            output, errors = process.communicate()
    if process.returncode not in codes:
        raise GitError(_in_words(errors.decode(errors="replace").strip(), folder) or f"git {arguments[0]} failed")
    if complaints is not None:
        complaints += os.fsdecode(errors).splitlines()
    return output


def commit(top: Path, paths: Sequence[str], *messages: str) -> str:
    """Commit some files as the user would: with the settings and hooks of the repository. What is said if that fails.

    Asked for by name, and nothing else here runs what a repository configures.
    """
    run(top, "add", "--", *paths)
    command = [_executable(), "-C", str(top), "commit", "--quiet", *(f"--message={message}" for message in messages)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return (said or "no reason was given") if done.returncode else ""


def _executable() -> str:
    """An absolute path: a relative entry of PATH would let the current folder choose."""
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(entry).is_absolute()]
    if (executable := shutil.which("git", path=os.pathsep.join(entries))) is None:
        raise GitError("git is not installed")
    return executable


def _environment(settings: dict[str, str], alone: Path | None) -> dict[str, str]:
    """The user's, ours, and settings after those of the user: a `-c` could not carry a name with an equals sign."""
    # What git hands to its hooks is relative to where they stand, and `-C` goes elsewhere.
    names = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
    paths = {name: os.path.realpath(value) for name in names if (value := os.environ.get(name))}
    known = os.environ.get("GIT_CONFIG_COUNT", "0")
    start = int(known) if known.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(start + len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings.items(), start):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    users = {**os.environ, **paths}
    if alone is not None:
        users = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        users["GIT_CEILING_DIRECTORIES"] = str(alone.resolve().parent)
    return {**users, **_ENVIRONMENT, **variables}


def toplevel(folder: Path) -> Path | None:
    """The root of the work tree around a folder; None outside of one, without git, or where git refuses."""
    try:
        return work_tree(folder)
    except GitError:
        return None


def work_tree(folder: Path) -> Path:
    """The same; raises `GitError` that says why there is none."""
    holder: Path | None = Path.cwd()  # where GIT_DIR is set, by the user or by git for its hooks
    if "GIT_DIR" not in os.environ:
        holder = next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)
    if holder is None:  # told without starting git
        if os.path.lexists(folder / "HEAD") and os.path.lexists(folder / "objects"):
            raise GitError(f"{folder} is a bare repository: run this in a work tree of it")
        raise GitError(f"{folder} is not in a git work tree")
    # Asked where `.git` lies: a folder on the way may be shaped like a bare repository.
    top = Path(os.fsdecode(run(holder, "rev-parse", "--show-toplevel")).removesuffix("\n"))
    if "GIT_DIR" not in os.environ and top != holder.resolve():
        raise GitError(f"the git configuration in {holder} claims another work tree, {top}")
    if not folder.is_relative_to(top):
        raise GitError(f"{folder} is not in the work tree {top}")
    return top


def git_folder(top: Path) -> Path:
    """The git directory of a work tree; raises `GitError`."""
    return Path(os.fsdecode(run(top, "rev-parse", "--absolute-git-dir")).removesuffix("\n"))


def is_ignored(path: Path, top: Path) -> bool:
    """Whether git ignores a path of a work tree."""
    try:
        run(top, "check-ignore", "-q", "--", f"./{os.path.relpath(path, top)}")
    except GitError:
        return False
    return True


def listed_files(
    folder: Path, top: Path, git_dir: Path | None = None, complaints: list[str] | None = None
) -> dict[str, str]:
    """Files below a folder of a work tree, relative to it, with the mark of `ls-files -t`; no ignored untracked ones.

    `?` is not tracked, `S` left out by a sparse checkout.

    `complaints` takes what git had to say meanwhile.
    """
    where = ["--git-dir", str(git_dir), "--work-tree", str(top)] if git_dir else []
    kinds = ["-t", "--cached", "--others", "--exclude-standard"]
    inside = os.path.relpath(folder, top)
    asked = (*where, "--literal-pathspecs", "ls-files", "-z", *kinds, "--", inside)
    listed = names(run(top, *asked, complaints=complaints))
    start = 2 if inside == "." else len(inside) + 3  # behind the mark of its kind
    return {name[start:]: name[0] for name in listed}


def changed_files(folder: Path, top: Path, unstaged: bool = False) -> list[str]:
    """Tracked files below a folder with uncommitted changes, relative to the top; submodules are not looked into.

    `unstaged` asks for those alone that the work tree has otherwise than they are staged.
    """
    kinds = ["--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=all"]
    # Every filter there is, switched off: which one a file goes through is said in the tree itself.
    filters = names(run(top, "config", "-z", "--name-only", "--get-regexp", r"^filter\.", codes=(0, 1)))
    without = {key: "false" if key.endswith(".required") else "" for key in filters}
    where = ("--", os.path.relpath(folder, top))
    entries = names(run(top, "--literal-pathspecs", "status", *kinds, *where, settings=without))
    return [entry[3:] for entry in entries if not unstaged or entry[1] in "MDT"]


def commit_of(top: Path, reference: str) -> str:
    """The commit that a name stands for; raises `GitError`, also where it may stand for several."""
    complaints: list[str] = []
    asked = ("rev-parse", "--verify", "--end-of-options", f"{reference}^{{commit}}")
    commit = run(top, *asked, complaints=complaints).decode().strip()
    if any(line.endswith("is ambiguous.") for line in complaints):
        raise Ambiguous(f"the name {reference!r} is ambiguous: write refs/heads/..., refs/tags/... or refs/remotes/...")
    return commit


def file_at(top: Path, revision: str, path: str) -> bytes | None:
    """The bytes of a file of a commit, through links that stay in it; None where there is none."""
    asked = os.fsencode(f"{revision}:{path}\n")
    told, _, data = run(top, "cat-file", "--batch", "--follow-symlinks", stdin=asked).partition(b"\n")
    match told.split():
        case [_, b"blob", size]:
            return data[: int(size)]
    return None


def contents(folder: Path, blobs: Iterable[str], *options: str) -> dict[str, bytes]:
    """The bytes of blobs by their names, all in one call of git; what the clone lacks is left out."""
    wanted = sorted(set(blobs))
    output = run(folder, *options, "cat-file", "--batch", stdin="\n".join([*wanted, ""]).encode()) if wanted else b""
    by_name: dict[str, bytes] = {}
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        name, *facts = output[position:end].decode().split()
        position = end + 1
        if facts[0] != "missing":
            by_name[name] = output[position : position + int(facts[1])]
            position += int(facts[1]) + 1
    return by_name


def names(output: bytes) -> list[str]:
    """What `-z` separates."""
    return [name for name in os.fsdecode(output).split("\0") if name]


def _endless_files(folder: Path) -> Iterator[Path]:
    """Pipes, sockets and devices where git expects files of its own."""
    for current, folders, files in os.walk(folder):
        inside = ".git" in Path(current).relative_to(folder).parts
        if inside and "objects" in folders:
            folders.remove("objects")
        for name in files:
            path = Path(current, name)
            if inside or name.startswith(".git"):
                try:
                    mode = path.stat().st_mode
                except OSError:
                    continue
                if not stat.S_ISREG(mode):
                    yield path


def _in_words(message: str, folder: Path) -> str:
    if "dubious ownership" in message:
        way = f"if you do, run `git config --global --add safe.directory {folder}`"
        return f"git does not trust {folder}, which belongs to another user: {way}"
    if "promisor remote" in message:
        return PARTIAL_CLONE
    return message.removeprefix("fatal: ")
