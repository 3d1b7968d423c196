"""Which files a scan looks at: what git lists, or a walk that leaves out environments and caches."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from mcore_unpatch.errors import FileError, UsageError
from mcore_unpatch.megatron.versions import FOLDERS
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.paths import relative, shown

PYTHON = (".py", ".pyw")
PATCHES = (".patch", ".diff")
_PROSE = (".md", ".rst")
_MOST_BYTES = 4_000_000  # beyond that a file is data
_ENVIRONMENTS = (".venv", "venv", ".tox", ".nox", "node_modules", "__pypackages__")
_CACHES = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".eggs")
SKIPPED_FOLDERS = frozenset((".git", ".hg", ".svn", *_ENVIRONMENTS, *_CACHES))


@dataclass(slots=True)
class Discovery:
    """The files of a scan; `python` and `patches` are relative to `top`, the root of the project."""

    root: Path
    top: Path
    python: list[str] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)  # what could not be looked into
    links: set[str] = field(default_factory=set)  # of `python` and `patches`: these are read, and never written

    @property
    def editable(self) -> frozenset[str]:
        """The Python files that a migration may write."""
        return frozenset(self.own) - self.links

    @property
    def own(self) -> list[str]:
        """The Python files but for those of a Megatron Core that is carried along: these are no patches of it."""

        def is_listed(path: str) -> bool:
            return os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114 - of very many

        top = self.top.as_posix()
        return [path for path in self.python if not is_megatron_itself(f"{top}/{path}", is_listed)]

    def shown(self, path: str) -> str:
        """A path as machines are told it: relative to the root of the scan."""
        return relative(self.top / path, self.root)


def discover(paths: list[Path], exclude: tuple[str, ...] = (), base: Path | None = None) -> Discovery:
    """Find the files below the given folders; raises `UsageError` for a path that does not exist.

    `exclude` holds glob patterns, relative to `base` (where the configuration stands) or to the root.
    """
    real = [existing(path) for path in paths]
    root = root_of(paths)
    found = Discovery(root, project_root(root))
    base = base or root
    seen: set[str] = set()
    for path in real:
        folder = _folder(path)
        start = f"{relative(folder, found.top)}/".removeprefix("./")
        for name in [path.name] if path.is_file() else _below(path, found):
            from_top = f"{start}{name}"
            if from_top in seen or is_excluded(folder / name, base, exclude):
                continue
            seen.add(from_top)
            if is_patch_file(name):
                found.patches.append(from_top)
            elif is_source(name) or path.is_file():
                found.python.append(from_top)
    found.python.sort()
    found.patches.sort()
    found.errors = [error for error in found.errors if not is_excluded(found.top / error.path, base, exclude)]
    if any(base.is_relative_to(path) for path in real):
        idle = [pattern for pattern in exclude if not _matches_something(pattern, base)]
        found.notes += [f"exclude {pattern!r} matches nothing below {base}: remove or correct it" for pattern in idle]
    return found


def whole_of(discovery: Discovery, paths: list[Path], exclude: tuple[str, ...]) -> Discovery:
    """All files of the projects that the given paths are part of, those of `exclude` too."""
    real = [existing(path) for path in paths]
    if real == [discovery.top] and not exclude:
        return discovery
    projects = dict.fromkeys(project_root(_folder(path)) for path in real)
    return discover([*projects, *real])


def others(whole: Discovery, part: Discovery) -> Discovery:
    """The files of a project that are not among those found."""
    known = {*part.python, *part.patches}
    python, patches = ([path for path in paths if path not in known] for paths in (whole.python, whole.patches))
    return replace(whole, python=python, patches=patches)


def settings(top: Path, names: Iterable[str]) -> list[str]:
    """Those of the files of a project that are neither Python nor patches nor prose; data left out."""
    found = Discovery(top, top)
    files = {name: top / name for name in names if not is_source(name) and not name.endswith(_PROSE)}
    return [name for name, file in files.items() if _is_plain_file(file, found) and file.stat().st_size <= _MOST_BYTES]


def listed(top: Path) -> list[str]:
    """All files of a project, relative to its top, as git or a walk lists them."""
    discovery = Discovery(top, top)
    by_git = _listed_by_git(top, discovery)
    return _walked(top, discovery) if by_git is None else list(by_git)


def root_of(paths: list[Path]) -> Path:
    """The folder that the given paths share."""
    return Path(os.path.commonpath([_folder(existing(path)) for path in paths or [Path()]]))


def top_of(paths: list[Path]) -> Path:
    """The top of the project that the given paths are part of."""
    return project_root(root_of(paths))


def project_root(folder: Path) -> Path:
    """The top of the project around a folder: its git work tree, else the nearest folder that holds a project file."""
    if (top := git.toplevel(folder)) is not None:
        return top
    for parent in (folder, *folder.parents):
        if any(os.path.lexists(parent / name) for name in ("pyproject.toml", "setup.py", "setup.cfg")):
            return parent
    return folder


def existing(path: Path) -> Path:
    """A path the user named, resolved; raises `UsageError` for one that no command can start from."""
    try:
        if (kind := reading.kind(path)) is not None:
            raise UsageError(f"{shown(path)} is {kind}: name a file or a folder")
        return path.resolve(strict=True)
    except FileNotFoundError:
        name, hint = re.sub(r"^([a-z+]+:/)(?=[^/])", r"\1/", str(path)), ""  # where a user writes two, it has one slash
        if re.match(r"[a-z+]+:/|git@", name):
            hint = " (a repository is read from disk: `git clone` it, and name the folder)"
        elif re.fullmatch(r"v?\d+\.\d[\w.]*", name):
            hint = f" (a release is named with an option: `unpatch upgrade --to {name.lstrip('v')}`)"
        raise UsageError(f"no such file or folder: {shown(name)}{hint}") from None
    except (RuntimeError, OSError) as error:  # a symlink loop
        raise UsageError(f"cannot open {shown(path)}: {getattr(error, 'strerror', None) or 'symlink loop'}") from None


def _folder(path: Path) -> Path:
    return path.parent if path.is_file() else path


def is_excluded(path: Path, base: Path, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern, relative to `base`, names a file or a folder above it."""
    if not patterns:
        return False
    name = relative(path, base)
    return any(fnmatch(name, p) or fnmatch(name, f"{p.rstrip('/')}/*") for p in patterns)


def _matches_something(pattern: str, base: Path) -> bool:
    """Whether there is a file or folder of that name, ignored or not."""
    literal = pattern.rstrip("/")
    if os.path.lexists(base / literal):
        return True
    for current, folders, files in os.walk(base):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        prefix = relative(Path(current), base)
        names = [name if prefix == "." else f"{prefix}/{name}" for name in (*folders, *files)]
        if any(fnmatch(name, literal) for name in names):
            return True
    return False


def _below(folder: Path, discovery: Discovery) -> list[str]:
    """Files of interest below a folder, relative to it; what git tracks wherever it lies."""
    tracked = _listed_by_git(folder, discovery)
    names = list(tracked or ())
    if tracked is None:
        tracked = {}
        names = _walked(folder, discovery)
        if any(name.rpartition("/")[2] == ".gitignore" for name in names):
            try:
                with tempfile.TemporaryDirectory() as temporary:  # a repository that knows no file has the rules apply
                    git.run(Path(temporary), "init", "--quiet", "--bare", "empty.git")
                    not_ignored = git.listed_files(folder, folder, Path(temporary, "empty.git"))
                names = [name for name in names if name in not_ignored]
            except git.GitError as error:
                discovery.notes.append(f"{error}, so .gitignore is not applied.")
    wanted = [name for name in names if is_source(name)]
    homes = {name.rpartition("/")[0] for name in wanted if not tracked.get(name)}
    folders = {str(above) for home in homes for above in (home, *PurePosixPath(home).parents)} - {"", "."}
    environments = tuple(f"{name}/" for name in folders if os.path.lexists(folder / name / "pyvenv.cfg"))
    kept = []
    for name in wanted:
        left_out = SKIPPED_FOLDERS.intersection(name.split("/")[:-1]) or name.startswith(environments)
        if (tracked.get(name) or not left_out) and _is_plain_file(folder / name, discovery):
            kept.append(name)
    return kept


def _is_plain_file(path: Path, discovery: Discovery) -> bool:
    """A file itself, or a link to one that is read under no other name; a pipe, which would never end, is an error."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return _leads_to_a_file(path, discovery)
    except (FileNotFoundError, NotADirectoryError):
        return False  # listed by git, deleted on disk
    except OSError as error:
        discovery.errors.append(FileError.of(relative(path, discovery.top), error))
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        discovery.errors.append(FileError(relative(path, discovery.top), f"{reading.kind(path)}, not a regular file"))
    return stat.S_ISREG(mode)


def _leads_to_a_file(link: Path, discovery: Discovery) -> bool:
    try:
        end = link.resolve(strict=True)
    except (RuntimeError, OSError):  # a loop, or nothing there
        return False
    if not is_source(link.name) or not end.is_file():
        return False
    if not end.is_relative_to(discovery.top) or ".git" in end.relative_to(discovery.top).parts:
        discovery.notes.append(f"{shown(relative(link, discovery.top))} is a link out of the repository, and not read.")
        return False
    if is_read_as(link.name, end.name):
        return False
    discovery.links.add(relative(link, discovery.top))
    return True


def _listed_by_git(folder: Path, discovery: Discovery) -> dict[str, bool] | None:
    top = git.toplevel(folder)
    if top is None or (folder != top and git.is_ignored(folder, top)):
        return None
    try:
        complaints: list[str] = []
        marks = git.listed_files(folder, top, complaints=complaints)
    except git.GitError as error:
        discovery.notes.append(f"git could not list the files ({error}), so .gitignore is not applied.")
        return None
    for line in complaints:
        if match := re.fullmatch(r"warning: could not open directory '(.*?)/?': (.*)", line):
            discovery.errors.append(FileError(relative(top / match[1], discovery.top), f"cannot be read: {match[2]}"))
    if sparse := [name for name, mark in marks.items() if mark == "S" and is_source(name)]:
        discovery.notes.append(f"A sparse checkout leaves out {len(sparse)} files, which are not read: {sparse[0]} ...")
    others = [name for name in marks if not is_source(name)]
    _tell_of_links(folder, others, discovery)
    if nested := [name for name in others if name.endswith("/") or os.path.lexists(f"{folder}/{name}/.git")]:
        listed = ", ".join(shown(name.rstrip("/")) for name in nested[:3])
        discovery.notes.append(f"Nested repositories are not scanned: {listed}{' ...' if len(nested) > 3 else ''}.")
    return {name: mark != "?" for name, mark in marks.items()}


def _tell_of_links(folder: Path, names: Iterable[str], discovery: Discovery) -> None:
    """Folders that are looked into under no name of the repository's own."""
    links = [folder / name for name in names if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114 - of very many
    out = [link for link in links if link.is_dir() and not link.resolve().is_relative_to(discovery.top)]
    if out:
        told = ", ".join(shown(relative(link, discovery.top)) for link in out[:3]) + (" ..." if out[3:] else "")
        discovery.notes.append(f"Links to folders out of the repository are not read: {told}.")


def _walked(folder: Path, discovery: Discovery) -> list[str]:
    names: list[str] = []
    errors: list[OSError] = []
    for current, folders, files in os.walk(folder, onerror=errors.append):
        own = (name for name in folders if not os.path.lexists(Path(current, name, "pyvenv.cfg")))
        folders[:] = sorted(name for name in own if name not in SKIPPED_FOLDERS)
        prefix = relative(Path(current), folder)
        _tell_of_links(Path(current), folders, discovery)
        names += [name if prefix == "." else f"{prefix}/{name}" for name in sorted(files)]
    discovery.errors += [FileError.of(relative(Path(error.filename), discovery.top), error) for error in errors]
    return names


_OF_MEGATRON = re.compile(rf"(?:^|/)(?=megatron/(?:{'|'.join(FOLDERS)})/)")


def is_megatron_itself(path: str, exists: Callable[[str], bool]) -> bool:
    """Megatron's own source, vendored or installed, is not a patch of itself."""
    match = _OF_MEGATRON.search(path)
    return match is not None and exists(f"{path[: match.end()]}megatron/core/package_info.py")


def is_source(path: str) -> bool:
    """Whether a file is one that a scan reads, by its name."""
    return path.lower().endswith((*PYTHON, *PATCHES))


def is_patch_file(path: str) -> bool:
    """Whether a file is a diff, by its name."""
    return path.lower().endswith(PATCHES)


def is_read_as(link: str, end: str) -> bool:
    """Whether what a link leads to is read the same way under its own name."""
    return is_source(end) and is_patch_file(end) == is_patch_file(link)
