"""The files of one repository, read on demand, and the way from an import to the file it names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import lru_cache

from mcore_unpatch.sources.parsed import Parsed
from mcore_unpatch.sources.parsing import MAX_BYTES, TooLarge, Unreadable

Reader = Callable[[str], bytes]

# What is kept while one file after the other is looked at does not grow with the project: so many files' bytes, so many
# answers on names and paths.
_READ = 32
_ANSWERS = 1 << 14
_IMPORT = re.compile(
    rb"\n[ \t]*+(?:from[ \t]++([\w.]++)[ \t]++import\b[ \t]*+(\([^)]*+|[^\n]*+)|import[ \t]++([\w., \t]++))"
)
_NAME = re.compile(r"(?:^|[,(])\s*+([A-Za-z_]\w*+)")


class Project:
    """Python files by their posix path relative to the repository's root: whether there is one, and its bytes."""

    def __init__(self, exists: Callable[[str], bool], read: Reader, parsed: Parsed | None = None) -> None:
        self.exists, self.read, self.parsed = exists, read, parsed or Parsed()
        self.data = lru_cache(_READ)(self._data)
        self._found = lru_cache(_ANSWERS)(self._locate)
        self._bases = lru_cache(_ANSWERS)(self._find_bases)

    def _data(self, path: str) -> bytes:
        """The bytes of a file, with plain line ends."""
        data = self.read(path)
        if len(data) > MAX_BYTES:
            raise TooLarge(len(data), b"egatron" in data or b"mcore" in data)
        return with_plain_line_ends(data)

    def text(self, path: str) -> bytes:
        """The same; none of a file that cannot be read, which the scan tells."""
        try:
            return self.data(path)
        except (OSError, Unreadable):
            return b""

    def locate(self, importer: str, module: str, level: int) -> str | None:
        """The path of the file an import names; absolute imports are tried from every folder above the importer."""
        return self._found(posixpath.dirname(importer), module, level)

    def target(self, importer: str, module: str, level: int) -> str | None:
        """The other file that an import statement names."""
        path = self.locate(importer, module, level)
        return path if path != importer else None

    def imported(self, path: str) -> tuple[str, ...]:
        """The files of the repository that a file imports, told by its bytes."""
        return self.imported_by(path, self.text(path))

    def imported_by(self, path: str, data: bytes) -> tuple[str, ...]:
        """The files of the repository that a file with these bytes imports."""
        names = dict.fromkeys(_imported_modules(data))
        modules = ((name.lstrip("."), len(name) - len(name.lstrip("."))) for name in names)
        found = (self.target(path, module, level) for module, level in modules)
        return tuple(dict.fromkeys(filter(None, found)))

    def _locate(self, folder: str, module: str, level: int) -> str | None:
        tail = module.replace(".", "/")
        if level:
            for _ in range(level - 1):
                folder = posixpath.dirname(folder)
            return self._file(posixpath.join(folder, tail) if tail else folder)
        head = module.partition(".")[0]
        for base in self._bases(folder, head):
            if found := self._file(posixpath.join(base, tail)):
                return found
        return None

    def _find_bases(self, folder: str, head: str) -> tuple[str, ...]:
        """Folders at or above `folder` that hold the top-level name `head`; most imports have none."""
        above = self._bases(posixpath.dirname(folder), head) if folder else ()
        here = [base for base in (folder, posixpath.join(folder, "src")) if self._has_name(posixpath.join(base, head))]
        return (*here, *above)

    def _has_name(self, stem: str) -> bool:
        """Whether a module or package of that path may exist."""
        return self.exists(f"{stem}.py") or self.exists(stem)

    def _file(self, stem: str) -> str | None:
        for path in (f"{stem}/__init__.py" if stem else "__init__.py", f"{stem}.py"):  # in the order of Python
            if self.exists(path):
                return path
        return None


def _imported_modules(data: bytes) -> list[str]:
    """Names that may be modules as import statements write them, leading dots included."""
    modules = []
    for match in _IMPORT.finditer(b"\n" + data):
        if match[1]:
            module = match[1].decode()
            modules.append(module)
            prefix = module if module.endswith(".") else f"{module}."
            modules += [prefix + name for name in _NAME.findall(match[2].decode(errors="replace"))]
        else:
            modules += [part.split()[0] for part in match[3].decode().split(",") if part.strip()]
    return modules


def with_plain_line_ends(data: bytes) -> bytes:
    """A file as Python reads it, with one sign at the end of each line."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data
