"""Which files a scan looks at: what git lists, or a walk that leaves out environments and caches."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from mcore_unpatch import git
from mcore_unpatch.errors import UsageError
from mcore_unpatch.paths import relative

PYTHON = (".py",)
PATCHES = (".patch", ".diff")
SKIPPED_FOLDERS = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".eggs",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        "__pycache__",
        "node_modules",
        "__pypackages__",
    ]
)


@dataclass(slots=True)
class Discovery:
    """The files of a scan; `python` and `patches` are relative to `top`, the root of the project."""

    root: Path
    top: Path
    python: list[str] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def own(self) -> list[str]:
        """The Python files but for those of a Megatron Core that is carried along: these are no patches of it."""
        return [path for path in self.python if not _is_megatron_itself(self.top, path)]

    def shown(self, path: str) -> str:
        """A path as machines are told it: relative to the root of the scan."""
        return relative(self.top / path, self.root)


def discover(paths: list[Path], exclude: tuple[str, ...] = (), base: Path | None = None) -> Discovery:
    """Find the files below the given folders; raises `UsageError` for a path that does not exist.

    `exclude` holds glob patterns, relative to `base` (where the configuration stands) or to the root.
    """
    real = [_existing(path) for path in paths]
    root = _common_folder(real)
    found = Discovery(root, project_root(root))
    seen: set[str] = set()
    for path in real:
        names = [path.name] if path.is_file() else _below(path, found)
        folder = path.parent if path.is_file() else path
        for name in names:
            full = folder / name
            from_top = relative(full, found.top)
            if from_top in seen or _is_excluded(full, base or root, exclude):
                continue
            seen.add(from_top)
            if name.endswith(PATCHES):
                found.patches.append(from_top)
            elif name.endswith(PYTHON) or path.is_file():
                found.python.append(from_top)
    found.python.sort()
    found.patches.sort()
    return found


def whole_of(found: Discovery, paths: list[Path], exclude: tuple[str, ...]) -> Discovery:
    """All files of the projects that the given paths are part of, those of `exclude` too."""
    real = [_existing(path) for path in paths or [Path()]]
    if real == [found.top] and not exclude:
        return found
    projects = dict.fromkeys(project_root(path.parent if path.is_file() else path) for path in real)
    return discover([*projects, *real])


def project_root(folder: Path) -> Path:
    """The top of the project around a folder: its git work tree, else the nearest folder that holds a project file."""
    top = git.toplevel(folder)
    if top is not None:
        return top
    for parent in (folder, *folder.parents):
        if any((parent / name).is_file() for name in ("pyproject.toml", "setup.py", "setup.cfg")):
            return parent
    return folder


def _existing(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except FileNotFoundError:
        raise UsageError(f"no such file or folder: {path}") from None
    except (RuntimeError, OSError) as error:  # a symlink loop
        raise UsageError(f"cannot open {path}: {getattr(error, 'strerror', None) or 'symlink loop'}") from None


def _common_folder(paths: list[Path]) -> Path:
    folders = [path.parent if path.is_file() else path for path in paths]
    return Path(os.path.commonpath(folders))


def _is_excluded(path: Path, base: Path, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    name = relative(path, base)
    return any(fnmatch(name, p) or fnmatch(name, f"{p.rstrip('/')}/*") for p in patterns)


def _below(folder: Path, found: Discovery) -> list[str]:
    """Files of interest below a folder, relative to it; symlinks are not followed."""
    names = _listed_by_git(folder, found)
    if names is None:
        names = _walked(folder)
        if any(name.rpartition("/")[2] == ".gitignore" for name in names):
            names = _without_ignored(folder, names, found)
    wanted = [name for name in names if name.endswith((*PYTHON, *PATCHES))]
    environments = _environments(folder, wanted)
    kept = []
    for name in wanted:
        parts = name.split("/")[:-1]
        if SKIPPED_FOLDERS.intersection(parts) or any(name.startswith(prefix) for prefix in environments):
            continue
        if _is_plain_file(f"{folder}/{name}"):
            kept.append(name)
    return kept


def _is_plain_file(path: str) -> bool:
    """A file itself: no symlink, which may lead out of the root, and no pipe, which would never end."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False  # listed by git, deleted on disk


def _listed_by_git(folder: Path, found: Discovery) -> list[str] | None:
    top = git.toplevel(folder)
    if top is None or git.is_ignored(folder, top):
        return None
    try:
        names = git.listed_files(folder, top)
    except git.GitError as error:
        found.notes.append(f"git could not list the files ({error}); ignore rules are not applied")
        return None
    nested = [
        name
        for name in names
        if name.endswith("/") or (not name.endswith((*PYTHON, *PATCHES)) and (folder / name / ".git").exists())
    ]
    if nested:
        shown = ", ".join(name.rstrip("/") for name in nested[:3])
        found.notes.append(f"not scanned, repositories of their own: {shown}{' ...' if len(nested) > 3 else ''}")
    return names


def _walked(folder: Path) -> list[str]:
    names: list[str] = []
    for current, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and not Path(current, name, "pyvenv.cfg").exists()
        )
        prefix = Path(os.path.relpath(current, folder)).as_posix()
        names += [name if prefix == "." else f"{prefix}/{name}" for name in sorted(files)]
    return names


def _without_ignored(folder: Path, names: list[str], found: Discovery) -> list[str]:
    try:
        with tempfile.TemporaryDirectory() as temporary:
            kept = set(git.listed_files(folder, folder, git.make_empty(Path(temporary))))
    except git.GitError as error:
        found.notes.append(f"{error}: .gitignore is not applied")
        return names
    return [name for name in names if name in kept]


def _environments(folder: Path, names: list[str]) -> list[str]:
    """Folders that are virtual environments, as prefixes."""
    folders = {name.rpartition("/")[0] for name in names}
    folders |= {"/".join(f.split("/")[:depth]) for f in folders for depth in range(1, f.count("/") + 1)}
    return [f"{name}/" for name in folders if name and (folder / name / "pyvenv.cfg").exists()]


def _is_megatron_itself(top: Path, path: str) -> bool:
    """Megatron Core's own source, vendored or installed, is not a patch of itself."""
    full = f"{top.as_posix()}/{path}"
    return (
        "/megatron/core/" in full
        and (Path(full[: full.index("/megatron/core/")]) / "megatron/core/package_info.py").exists()
    )
