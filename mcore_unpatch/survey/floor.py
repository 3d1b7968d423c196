"""On which releases of Megatron a file can be imported at all: by what it and its imports ask at module level.

Only imports that nothing guards count; what a release lacks there raises before any line of the file runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, ROOT
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsing import Unreadable

_MOST = 2000  # files that one file leads to


class Floors:
    """The releases for each file of a project, each file read once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._asked: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}

    def releases(self, path: str) -> tuple[str, ...]:
        """The known releases on which a file can be imported; all of them where none can, for nobody knows more."""
        seen, waiting, asked = {path}, [path], set[str]()
        for file in waiting:
            names, files = self._of(file)
            asked |= names
            new = [one for one in files if one not in seen]
            seen.update(new)
            waiting += new if len(waiting) < _MOST else []
        fitting = tuple(release for release in RELEASES if all(known.has(name, release) for name in asked))
        return fitting or RELEASES

    def _of(self, path: str) -> tuple[frozenset[str], tuple[str, ...]]:
        """What a file asks of Megatron, and the files that its import runs."""
        if path not in self._asked:
            try:
                tree = self._project.parsed.tree(path, self._project.data(path))
                imports = list(_imports(tree))
            except (OSError, Unreadable, RecursionError):
                imports = []
            names = {f"{module}.{name}".removesuffix(".") for module, name, level in imports if not level}
            core = frozenset(name for name in names if f"{name}.".startswith(f"{ROOT}.") and known.ever(name))
            files = (file for module, name, level in imports for file in self._files(path, module, name, level))
            self._asked[path] = core, tuple(dict.fromkeys(files))
        return self._asked[path]

    def _files(self, path: str, module: str, name: str, level: int) -> Iterator[str]:
        parts = module.split(".") if module else []
        for length in range(1, len(parts) + 1):  # the packages around it run first
            if file := self._project.locate(path, ".".join(parts[:length]), level):
                yield file
        if name and (file := self._project.locate(path, ".".join([*parts, name]), level)):
            yield file


def _imports(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = ("" if alias.name == "*" else alias.name for alias in node.names)
            yield from ((node.module or "", name, node.level) for name in names)
