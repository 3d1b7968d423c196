"""The source of a library, wherever it lies: a folder, a wheel, a commit of a local clone. Nothing of it is run."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from mcore_unpatch.building.build import SourceFile, build, definitions
from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.detailed import Detailed, Releases
from mcore_unpatch.library.facts import Definition, Entry, Heart
from mcore_unpatch.library.names import Namespace
from mcore_unpatch.library.packed import Packed
from mcore_unpatch.repository import git, reading

_BUILDER = 7  # another number for another builder: what an older one has left in the cache is not read
_MOST_FILES = 20_000
_LARGEST_FILE = 4 << 20
_LARGEST = 256 << 20

Files = dict[str, bytes]  # by path below the folder that holds the top package


def read_source(place: str | Path, heart: Heart) -> Files:
    """The Python files of a library: `folder`, `file.whl`, or `clone@commit`; raises `UsageError`."""
    clone, at, commit = str(place).rpartition("@")
    if at and not os.path.lexists(place) and Path(clone).is_dir():
        return _limited(_in_commit(Path(clone), commit, heart), place)
    path = Path(place)
    if not os.path.lexists(path):
        raise UsageError(f"{path} does not exist; pass a checkout, a wheel, a folder, or CLONE@COMMIT.")
    if not path.is_dir():
        return _limited(_in_wheel(path, heart), place)
    for folder in (path, path.parent, path.parent.parent):
        if (folder / heart.packages[0].replace(".", "/")).is_dir():
            return _limited(_in_folder(folder, heart), place)
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return _limited(_in_commit(path, "HEAD", heart), place)
    raise UsageError(
        f"{path} contains no {heart.packages[0].replace('.', '/')}; pass a checkout, a wheel or an unpacked wheel."
    )


def _limited(files: Iterator[SourceFile], place: str | Path) -> Files:
    """All of them, unless they are more than any library has."""
    found: Files = {}
    total = 0
    for path, data in files:
        found[path] = data
        total += len(data)
        if len(found) > _MOST_FILES or total > _LARGEST:
            over = f"over {_MOST_FILES} files or {_LARGEST >> 20} MB of source"
            raise UsageError(f"{place} is too large to be read: {over}.")
    return found


def _too_large(path: str, size: int) -> UsageError:
    return UsageError(f"{path} is too large to be read: {size >> 20} MB of source in one file.")


def _in_folder(folder: Path, heart: Heart) -> Iterator[SourceFile]:
    for package in heart.packages:
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


def _in_wheel(file: Path, heart: Heart) -> Iterator[SourceFile]:
    if kind := reading.kind(file):
        raise UsageError(f"{file} is {kind}, not a wheel.")
    packages = tuple(f"{package.replace('.', '/')}/" for package in heart.packages)
    try:
        with zipfile.ZipFile(file) as archive:
            for info in sorted(archive.infolist(), key=lambda entry: entry.filename):
                if not (info.filename.endswith(".py") and info.filename.startswith(packages)):
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
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise UsageError(f"{file} cannot be read as a wheel: {error}") from None


def _in_commit(clone: Path, commit: str, heart: Heart) -> Iterator[SourceFile]:
    where = git_options(clone)
    if commit.startswith("-"):
        raise UsageError(f"{commit} is not a commit.")
    packages = [package.replace(".", "/") for package in heart.packages]
    listed = git.run(clone, *where, "ls-tree", "-r", "-z", "--long", f"{commit}^{{commit}}", "--", *packages)
    blobs = []
    for line in os.fsdecode(listed).split("\0"):
        head, _, path = line.partition("\t")
        if path.endswith(".py") and head.startswith("100"):
            _, _, name, size = head.split()
            if int(size) > _LARGEST_FILE:
                raise _too_large(f"{path} in {commit}", int(size))
            blobs.append((path, name))
    told = git.contents(clone, (name for _, name in blobs[: _MOST_FILES + 1]), *where)
    for path, name in blobs:
        if name not in told:
            raise UsageError(f"{path} of {commit} is missing in {clone}; pass a complete clone. (object {name})")
        yield path, told[name]


def git_options(clone: Path) -> list[str]:
    """What git has to be told to read a clone, which may be bare."""
    bare = (clone / "HEAD").is_file() and (clone / "objects").is_dir()
    return [f"--git-dir={clone.resolve()}"] if bare else []


def read(heart: Heart, label: str, files: Files) -> Packed:
    """What a source says, from the user's cache where it has been read before."""
    kept = cache_folder() / "models" / f"{_digest(heart, files)}.bin"
    try:
        packed = Packed.read(kept.read_bytes(), heart)
        if packed.labels == (label,):
            return packed
    except (OSError, ValueError):
        pass  # never read
    packed = build(heart, label, files.items())
    with suppress(OSError, UsageError):  # a cache that cannot be written is no error
        kept.parent.mkdir(parents=True, exist_ok=True)
        reading.replace_file(kept, packed.to_bytes())
    return packed


def _digest(heart: Heart, files: Files) -> str:
    digest = blake2b(f"{_BUILDER} {heart.distribution} {heart.packages}".encode(), digest_size=20)
    for path, data in sorted(files.items()):
        digest.update(f"{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where this tool keeps what it need not do twice."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcore-unpatch"


def glance(releases: Releases, label: str, files: Files) -> Detailed:
    """A source of which few names are asked: only the modules that they stand in are read, and no uses of names."""
    packed = releases.packed
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in files}
    read: dict[str, dict[str, Definition]] = {}

    def definition(name: str) -> Definition | None:
        module = name
        while module not in modules and "." in module:
            module = module.rpartition(".")[0]
        if module in modules and module not in read:
            read[module] = definitions(packed.heart, modules[module], files[modules[module]])
        return read.get(module, {}).get(name)

    def entry(name: str) -> Entry | None:
        return found.entry if (found := definition(name)) is not None else None

    def body(name: str, _: Entry) -> tuple[str, str]:
        return (found.digest, found.statements) if (found := definition(name)) is not None else ("", "")

    return Detailed(
        releases, len(packed.labels) - 1, label=label, names=Namespace(packed.heart, packed.listing, entry, body)
    )
