"""The source of a library, wherever it lies: a folder, a wheel, a commit of a local clone. Nothing of it is run."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.build import SourceFile, build
from mcore_unpatch.library.model import Library, Model
from mcore_unpatch.repository import git, reading

_BUILDER = 3  # another number for another builder: what an older one has left in the cache is not read
_MOST_FILES = 20_000
_LARGEST_FILE = 4 << 20
_LARGEST = 256 << 20

Files = dict[str, bytes]  # by path below the folder that holds the top package


def read_source(place: str | Path, library: Library) -> Files:
    """The Python files of a library: `folder`, `file.whl`, or `clone@commit`; raises `UsageError`."""
    clone, at, commit = str(place).rpartition("@")
    if at and not os.path.lexists(place) and Path(clone).is_dir():
        return _limited(_in_commit(Path(clone), commit, library), place)
    path = Path(place)
    if not os.path.lexists(path):
        raise UsageError(f"{path} does not exist; pass a checkout, a wheel, a folder, or CLONE@COMMIT.")
    if not path.is_dir():
        return _limited(_in_wheel(path, library), place)
    for folder in (path, path.parent, path.parent.parent):
        if (folder / library.packages[0].replace(".", "/")).is_dir():
            return _limited(_in_folder(folder, library), place)
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return _limited(_in_commit(path, "HEAD", library), place)
    raise UsageError(
        f"{path} contains no {library.packages[0].replace('.', '/')}; pass a checkout, a wheel or an unpacked wheel."
    )


def _limited(files: Iterator[SourceFile], place: str | Path) -> Files:
    """All of them, unless they are more than any library has."""
    found: Files = {}
    total = 0
    for path, data in files:
        found[path] = data
        total += len(data)
        if len(found) > _MOST_FILES or total > _LARGEST:
            raise UsageError(
                f"{place} is too large to be read: over {_MOST_FILES} files or {_LARGEST >> 20} MB of source."
            )
    return found


def _wanted(path: str, library: Library) -> bool:
    return path.endswith(".py") and path.startswith(tuple(f"{one.replace('.', '/')}/" for one in library.packages))


def _too_large(path: str, size: int) -> UsageError:
    return UsageError(f"{path} is too large to be read: {size >> 20} MB of source in one file.")


def _in_folder(folder: Path, library: Library) -> Iterator[SourceFile]:
    for package in library.packages:
        for below, folders, names in os.walk(folder / package.replace(".", "/")):
            folders.sort()
            for name in sorted(names):
                file = Path(below, name)
                if not name.endswith(".py"):
                    continue
                try:
                    if (size := file.stat().st_size) > _LARGEST_FILE:
                        raise _too_large(str(file), size)
                    yield file.relative_to(folder).as_posix(), reading.read(file)
                except OSError as error:
                    raise UsageError(f"{file} cannot be read: {error.strerror}.") from None


def _in_wheel(file: Path, library: Library) -> Iterator[SourceFile]:
    if kind := reading.kind(file):
        raise UsageError(f"{file} is {kind}, not a wheel.")
    try:
        with zipfile.ZipFile(file) as archive:
            for info in sorted(archive.infolist(), key=lambda one: one.filename):
                if not _wanted(info.filename, library):
                    continue
                if info.flag_bits & 1:
                    raise UsageError(f"{file} is encrypted; pass a plain wheel, or unpack it first.")
                if info.file_size > _LARGEST_FILE:
                    raise _too_large(f"{info.filename} in {file}", info.file_size)
                with archive.open(info) as opened:  # what it says of its size may be untrue
                    data = opened.read(_LARGEST_FILE + 1)
                if len(data) > _LARGEST_FILE:
                    raise _too_large(f"{info.filename} in {file}", len(data))
                yield info.filename, data
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"{file} cannot be read as a wheel: {error}") from None


def _in_commit(clone: Path, commit: str, library: Library) -> Iterator[SourceFile]:
    bare = (clone / "HEAD").is_file() and (clone / "objects").is_dir()
    where = [f"--git-dir={clone.resolve()}"] if bare else []
    if commit.startswith("-"):
        raise UsageError(f"{commit} is not a commit.")
    packages = [package.replace(".", "/") for package in library.packages]
    listed = git.run(clone, *where, "ls-tree", "-r", "-z", "--long", f"{commit}^{{commit}}", "--", *packages)
    blobs = []
    for line in os.fsdecode(listed).split("\0"):
        head, _, path = line.partition("\t")
        if path.endswith(".py") and head.startswith("100"):
            _, _, name, size = head.split()
            if int(size) > _LARGEST_FILE:
                raise _too_large(f"{path} in {commit}", int(size))
            blobs.append((path, name))
    asked = "".join(f"{name}\n" for _, name in blobs[: _MOST_FILES + 1]).encode()
    told = git.run(clone, *where, "cat-file", "--batch", stdin=asked)
    at = 0
    for path, name in blobs:
        end = told.index(b"\n", at)
        words = told[at:end].split()
        if len(words) != 3:
            raise UsageError(f"{path} of {commit} is missing in {clone}; pass a complete clone. (object {name})")
        length = int(words[2])
        yield path, told[end + 1 : end + 1 + length]
        at = end + 2 + length


def model_of(library: Library, label: str, files: Files) -> Model:
    """The model of a source, from the user's cache where it has been built before."""
    from mcore_unpatch.library.packing import Atlas, pack

    kept = _cache() / f"{_digest(library, files)}.bin"
    try:
        return Atlas(kept.read_bytes()).model(label)
    except (OSError, ValueError):
        pass  # never built, or another label
    model = build(library, label, files.items())
    _keep(kept, lambda: pack([model]))
    return model


def _digest(library: Library, files: Files) -> str:
    found = blake2b(f"{_BUILDER} {library}".encode(), digest_size=20)
    for path, data in sorted(files.items()):
        found.update(f"{path}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def cache_folder() -> Path:
    """Where this tool keeps what it need not do twice."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcore-unpatch"


def _cache() -> Path:
    return cache_folder() / "models"


def _keep(file: Path, content: Callable[[], bytes]) -> None:
    """Write a file of the cache; a cache that cannot be written is no error."""
    from mcore_unpatch.repository.atomic import replace_file

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content())
    except OSError:
        return
