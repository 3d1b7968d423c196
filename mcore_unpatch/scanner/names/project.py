"""The files of one scan, parsed on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mcore_unpatch.scanner.names.expressions import Expressions
from mcore_unpatch.scanner.names.resolver import Modules, Resolver
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.effort import Effort
from mcore_unpatch.scanner.sources.files import Reader
from mcore_unpatch.scanner.sources.parsing import Unreadable, parse
from mcore_unpatch.scanner.sources.scopes import build

# Parsed files are kept up to so many bytes of source (their trees take some forty times of that).
_PARSED_BYTES = 500_000


class Project(Modules):
    """Python files by their posix path relative to the project's root, and what resolves the names of each."""

    def __init__(self, exists: Callable[[str], bool], read: Reader) -> None:
        super().__init__(exists, read)
        self._parsed: OrderedDict[str, Resolver | None] = OrderedDict()
        self._parsed_bytes = 0

    def begin(self) -> None:
        """Turn to the next file: its effort is counted from nought, and what was parsed long ago is let go."""
        self.effort = Effort()
        while self._parsed_bytes > _PARSED_BYTES:
            _, resolver = self._parsed.popitem(last=False)
            if resolver is not None:
                self._parsed_bytes -= len(resolver.model.data)
                resolver.forget()

    def resolver(self, path: str) -> Resolver:
        """The parsed file; raises `Unreadable`."""
        known = self._parsed.get(path)
        if known is None:
            data = self.data(path)
            model = build(path, data, parse(data), prefilter.call_lines(data))
            known = self._parsed[path] = Expressions(model, self, self.related(path))
            self._parsed_bytes += len(data)
        self._parsed.move_to_end(path)
        return known

    def find(self, importer: str, module: str, level: int) -> Resolver | None:
        """The module an import statement in `importer` names, if it is a file of the repository."""
        path = self.locate(importer, module, level)
        if path is None or path == importer:
            return None
        if path in self._parsed:
            self._parsed.move_to_end(path)
            return self._parsed[path]
        self._parsed[path] = None  # one that cannot be parsed is not tried again
        try:
            found = self.resolver(path)
        except (Unreadable, OSError, RecursionError):
            return None
        self.effort.spend(len(found.model.data) // 4)
        return found
