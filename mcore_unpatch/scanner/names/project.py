"""The files of one scan, parsed on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from weakref import WeakSet

from mcore_unpatch.scanner.names.expressions import KINDS
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.sources.effort import Effort
from mcore_unpatch.scanner.sources.files import Files, Reader, TextFacts
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.parsing import Unreadable

# What was resolved is kept for files of so many bytes.
_MOST_BYTES = 1_400_000


class Project(Files):
    """Python files by their posix path relative to the project's root, and what resolves the names of each."""

    def __init__(
        self,
        exists: Callable[[str], bool],
        read: Reader,
        parsed: Parsed | None = None,
        texts: dict[str, TextFacts] | None = None,
        brought: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        super().__init__(exists, read, texts, brought)
        self.parsed = parsed or Parsed()
        self._resolvers: OrderedDict[str, Resolver | None] = OrderedDict()
        self._bytes = 0
        self._let_go: WeakSet[Resolver] = WeakSet()  # a file that others still refer to, and may ask again
        self._asked = ""  # the file at hand
        self._wanted: set[str] = set()  # files that others were seen to import, or that will be asked for again

    def begin(self) -> None:
        """Turn to the next file: its effort is counted from nought, and what was parsed long ago is let go."""
        self.effort = Effort()
        asked, self._asked = self._asked, ""
        if not asked:
            return  # most files are not parsed
        if asked in self._resolvers and asked not in self._wanted:
            self._resolvers.move_to_end(asked, last=False)
            self.parsed.files.demote(asked)  # one that nobody imports is let go first
        while self._bytes > _MOST_BYTES:
            _, resolver = self._resolvers.popitem(last=False)
            if resolver is not None:
                self._bytes -= len(resolver.model.data)
                self._let_go.add(resolver)
        for resolver in self._let_go:
            resolver.forget()

    def close(self) -> None:
        """Let go of all files: they refer to this project, and garbage is not looked for while files are analysed."""
        for resolver in filter(None, self._resolvers.values()):
            resolver.forget()
        self._resolvers.clear()
        self._bytes = 0

    def expect(self, path: str) -> None:
        """Say that a file will be asked for again: it is not let go of as soon as the next one is begun."""
        self._wanted.add(path)

    def resolver(self, path: str) -> Resolver:
        """The parsed file; raises `Unreadable`."""
        self._asked = path
        return self._resolver(path)

    def _resolver(self, path: str) -> Resolver:
        known = self._resolvers.get(path)
        if known is None:
            data = self.data(path)
            known = self._resolvers[path] = Resolver(self.parsed.model(path, data), self, self.find, KINDS)
            self._bytes += len(data)
        self._resolvers.move_to_end(path)
        return known

    def find(self, importer: str, module: str, level: int) -> Resolver | None:
        """The module an import statement in `importer` names, if it is a file of the repository."""
        path = self.target(importer, module, level)
        if path is None:
            return None
        self.expect(path)
        if path in self._resolvers:
            self._resolvers.move_to_end(path)
            self.parsed.files.get(path)
            return self._resolvers[path]
        self._resolvers[path] = None  # one that cannot be parsed is not tried again
        try:
            found = self._resolver(path)
        except (Unreadable, OSError, RecursionError):
            return None
        self.effort.spend(len(found.model.data) // 4)
        return found
