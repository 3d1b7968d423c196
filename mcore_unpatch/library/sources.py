"""The source of a library, wherever it lies: a folder, a wheel, a commit of a local clone. Nothing of it is run."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.build import SourceFile, build, read_module
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import Library, Model, NameIndex
from mcore_unpatch.repository import git, reading

_BUILDER = 6  # another number for another builder: what an older one has left in the cache is not read
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
            over = f"over {_MOST_FILES} files or {_LARGEST >> 20} MB of source"
            raise UsageError(f"{place} is too large to be read: {over}.")
    return found


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
    packages = tuple(f"{package.replace('.', '/')}/" for package in library.packages)
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
    told = git.contents(clone, (name for _, name in blobs[: _MOST_FILES + 1]), *where)
    for path, name in blobs:
        if name not in told:
            raise UsageError(f"{path} of {commit} is missing in {clone}; pass a complete clone. (object {name})")
        yield path, told[name]


def model_of(library: Library, label: str, files: Files) -> Model:
    """The model of a source, from the user's cache where it has been built before."""
    from mcore_unpatch.library.packing import Atlas, pack

    kept = cache_folder() / "models" / f"{_digest(library, files)}.bin"
    try:
        return Atlas(kept.read_bytes()).model(label)
    except (OSError, ValueError):
        pass  # never built, or another label
    model = build(library, label, files.items())
    with suppress(OSError, UsageError):  # a cache that cannot be written is no error
        kept.parent.mkdir(parents=True, exist_ok=True)
        reading.replace_file(kept, pack([model]))
    return model


def _digest(library: Library, files: Files) -> str:
    digest = blake2b(f"{_BUILDER} {library}".encode(), digest_size=20)
    for path, data in sorted(files.items()):
        digest.update(f"{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where this tool keeps what it need not do twice."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcore-unpatch"


# --- of which few names are asked: only the modules that they stand in are read ---------------------------------------


class ModuleByModule(Mapping[str, Fact]):
    """The facts of a source, module by module as they are asked for."""

    def __init__(self, library: Library, files: Files) -> None:
        self._library = library
        modules = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
        self._waiting = {modules[path]: (path, data) for path, data in files.items()}
        self.read: dict[str, Fact] = {}

    def __getitem__(self, name: str) -> Fact:
        module = name
        while module not in self._waiting and "." in module:
            module = module.rpartition(".")[0]
        self._load(module)
        return self.read[name]

    def __iter__(self) -> Iterator[str]:
        for module in self._waiting:
            self._load(module)
        return iter(list(self.read))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, module: str) -> None:
        path, data = self._waiting.get(module, ("", b""))
        if path and data is not None:
            self.read |= read_module(self._library, path, data).facts
            self._waiting[module] = ("", b"")


def light_model(library: Library, label: str, files: Files, names: Callable[[], NameIndex]) -> Model:
    """A model for a few questions about names, of which it knows `names`, and nothing of how the library uses them."""
    return Model(library, label, ModuleByModule(library, files), {}, names)
