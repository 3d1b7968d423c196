"""The files of one scan, read on demand, and the way from an import to the file it names."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.effort import Effort
from mcore_unpatch.scanner.sources.parsing import MAX_BYTES, TooLarge, Unreadable

Reader = Callable[[str], bytes]

# What is kept while one file after the other is looked at does not grow with the project: so many files' bytes, so many
# answers on names and paths.
_READ = 32
_ANSWERS = 1 << 14
# More imports than this are no one's own work; the first ones tell.
_IMPORTS = 10_000


class TextFacts(NamedTuple):
    """What the bytes of a file tell."""

    says_megatron: bool = False
    imports_megatron: bool = False
    imported: tuple[str, ...] = ()


class Files:
    """Python files by their posix path relative to the project's root: whether there is one, and its bytes."""

    def __init__(
        self,
        exists: Callable[[str], bool],
        read: Reader,
        texts: dict[str, TextFacts] | None = None,
        brought: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.exists, self.read = exists, read
        self.brought = brought or {}  # by module of Megatron's: names that patch files may add to what it takes
        self.links: set[tuple[str, str]] = set()  # files that a name was followed into, with who did
        self.effort = Effort()
        self.data = lru_cache(_READ)(self._data)
        self._found = lru_cache(_ANSWERS)(self._locate)
        self._bases = lru_cache(_ANSWERS)(self._find_bases)
        self._texts = {} if texts is None else texts  # what is known before, and what is added for others
        self._leads = lru_cache(_ANSWERS)(self._find_lead)
        self.installers = lru_cache(_ANSWERS)(self._find_installers)

    def _data(self, path: str) -> bytes:
        """The bytes of a file, with plain line ends."""
        data = self.read(path)
        if len(data) > MAX_BYTES:
            raise TooLarge(len(data), prefilter.mentions_megatron(path, data))
        return _with_plain_line_ends(data)

    def text(self, path: str) -> bytes:
        """The same; none of a file that cannot be read, which the scan tells."""
        try:
            return self.data(path)
        except (OSError, Unreadable):
            return b""

    def locate(self, importer: str, module: str, level: int) -> str | None:
        """The path of the file an import names; absolute imports are tried from every folder above the importer."""
        return self._found(posixpath.dirname(importer), module, level)

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

    def target(self, importer: str, module: str, level: int) -> str | None:
        """The other file that an import statement names."""
        path = self.locate(importer, module, level)
        if path is None or path == importer:
            return None
        self.links.add((importer, path))
        return path

    def lacks(self, importer: str, module: str, level: int, name: str) -> bool:
        """Whether the file that an import names has nothing of a name, told by its bytes: it need not be parsed."""
        path = self.target(importer, module, level)
        data = prefilter.plain(self.text(path)) if path is not None else b""
        return bool(data) and name.encode() not in data and not prefilter.takes_all_names(data)

    def imported(self, path: str) -> tuple[str, ...]:
        """The files of the repository that a file imports, told by its bytes."""
        return self._text(path).imported

    def related(self, path: str) -> bool:
        """Whether a file says Megatron, or imports a file of the repository that does (through a few files at most)."""
        return self._leads(path, 3, "says_megatron")

    def reaches_megatron(self, path: str) -> bool:
        """Whether a file imports a file of the repository that imports Megatron (through a few files at most)."""
        return any(self._leads(target, 2, "imports_megatron") for target in self.imported(path))

    def _find_lead(self, path: str, steps: int, fact: str) -> bool:
        """Whether a fact holds of a file, or of one that it imports, through so many files."""
        text = self._text(path)
        return getattr(text, fact) or (steps > 0 and any(self._leads(one, steps - 1, fact) for one in text.imported))

    def installers_for(self, path: str) -> frozenset[str]:
        """The functions and classes that set attributes of what they are given, of the files that a file imports."""
        return frozenset().union(*(self.installers(target) for target in self.imported(path)))

    def _find_installers(self, path: str) -> frozenset[str]:
        own = prefilter.installers(self.text(path))
        below = self._text(path).imported if path.endswith("__init__.py") else ()  # what it passes on
        return own.union(*(self.installers(target) for target in below if not target.endswith("__init__.py")))

    def _text(self, path: str) -> TextFacts:
        if path not in self._texts:
            self._texts[path] = self._read_text(path)
        return self._texts[path]

    def _read_text(self, path: str) -> TextFacts:
        """All that is asked of the bytes of a file that others import, so that it is read once."""
        try:
            try:
                data = self.data(path)
            except TooLarge:  # whom it imports tells whether it matters
                data = _with_plain_line_ends(self.read(path))
        except (OSError, Unreadable):
            return TextFacts()
        targets: dict[str, None] = {}
        folder = posixpath.dirname(path)
        elsewhere: set[str] = set()  # most names are of libraries, or below what is no package: that is asked once
        for name in islice(dict.fromkeys(prefilter.imported_modules(data)), _IMPORTS):
            head = name.partition(".")[0]
            if head in elsewhere or name.rpartition(".")[0] in elsewhere:
                continue
            bases = self._bases(folder, head) if head else ("",)
            if not bases:
                elsewhere.add(head)
                continue
            module = name.lstrip(".")
            target = self._found(folder, module, len(name) - len(module))
            if target and target != path:
                targets[target] = None
            if target and len(bases) == 1 and not target.endswith("__init__.py") and not self.exists(target[:-3]):
                elsewhere.add(name)
        return TextFacts(
            prefilter.mentions_megatron(path, data), prefilter.imports_megatron(prefilter.plain(data)), tuple(targets)
        )


def _with_plain_line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data
