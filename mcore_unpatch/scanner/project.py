"""The files of one scan, read and parsed on demand, and the way from an import to the file it names."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from mcore_unpatch.scanner import prefilter
from mcore_unpatch.scanner.resolve import Resolver
from mcore_unpatch.scanner.scopes import build
from mcore_unpatch.scanner.source import Unreadable, parse

Reader = Callable[[str], bytes]


class Project:
    """Python files by their posix path relative to the project's root: whether there is one, and its bytes."""

    def __init__(self, exists: Callable[[str], bool], read: Reader) -> None:
        self.exists, self.read = exists, read
        self._names: dict[str, bool] = {}
        self._resolvers: dict[str, Resolver | None] = {}
        self._data: dict[str, bytes] = {}
        self._found: dict[tuple[str, str, int], str | None] = {}
        self._known_bases: dict[tuple[str, str], tuple[str, ...]] = {}
        self._related: dict[str, bool] = {}

    def data(self, path: str) -> bytes:
        """The bytes of a file, read once, with plain line ends."""
        if path not in self._data:
            data = self.read(path)
            if b"\r" in data:
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            self._data[path] = data
        return self._data[path]

    def resolver(self, path: str) -> Resolver:
        """The parsed file; raises `Unreadable`."""
        known = self._resolvers.get(path)
        if known is None:
            data = self.data(path)
            model = build(path, data, parse(data), prefilter.call_lines(data))
            known = self._resolvers[path] = Resolver(model, self, self.related(path))
        return known

    def find(self, importer: str, module: str, level: int) -> Resolver | None:
        """The module an import statement in `importer` names, if it is a file of the repository."""
        path = self.locate(importer, module, level)
        if path is None or path == importer:
            return None
        if path in self._resolvers:
            return self._resolvers[path]
        self._resolvers[path] = None  # an import cycle meets nothing here, instead of itself
        try:
            return self.resolver(path)
        except (Unreadable, OSError, RecursionError):
            return None

    def locate(self, importer: str, module: str, level: int) -> str | None:
        """The path of the file an import names; absolute imports are tried from every folder above the importer."""
        key = (posixpath.dirname(importer), module, level)
        if key not in self._found:
            self._found[key] = self._locate(*key)
        return self._found[key]

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

    def _bases(self, folder: str, head: str) -> tuple[str, ...]:
        """Folders at or above `folder` that hold the top-level name `head`; most imports have none."""
        key = (folder, head)
        if key not in self._known_bases:
            above = self._bases(posixpath.dirname(folder), head) if folder else ()
            here = [
                base for base in (folder, posixpath.join(folder, "src")) if self.has_name(posixpath.join(base, head))
            ]
            self._known_bases[key] = (*here, *above)
        return self._known_bases[key]

    def has_name(self, stem: str) -> bool:
        """Whether a module or package of that path may exist."""
        if stem not in self._names:
            self._names[stem] = self.exists(f"{stem}.py") or self.exists(stem)
        return self._names[stem]

    def _file(self, stem: str) -> str | None:
        for path in (f"{stem}.py", f"{stem}/__init__.py" if stem else "__init__.py"):
            if self.exists(path):
                return path
        return None

    def related(self, path: str, depth: int = 3) -> bool:
        """Whether a file says Megatron, or imports a file of the repository that does (through a few files at most)."""
        known = self._related.get(path)
        if known is not None:
            return known
        try:
            data = self.data(path)
        except (OSError, Unreadable):
            return False
        found = prefilter.mentions_megatron(path, data)
        if not found and depth:
            self._related[path] = False
            for name in prefilter.imported_modules(data):
                module = name.lstrip(".")
                target = self.locate(path, module, len(name) - len(module))
                if target and target != path and self.related(target, depth - 1):
                    found = True
                    break
        self._related[path] = found
        return found
