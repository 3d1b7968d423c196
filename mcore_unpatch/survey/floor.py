"""On which releases of Megatron a file can be imported at all: by what it and its imports ask at module level.

Only imports that nothing guards count; what a release lacks there raises before any line of the file runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.index import Index
from mcore_unpatch.code.module import Module
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, ROOT

_MOST = 2000  # files that one file leads to


class Floors:
    """The releases for each file of a project, each file read once."""

    def __init__(self, index: Index) -> None:
        self._index = index
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
            module = self._index.module(path) if path in self._index.sources else None
            names = dict.fromkeys(_imports(module) if module is not None else ())
            core = frozenset(name for name in names if f"{name}.".startswith(f"{ROOT}.") and known.ever(name))
            parts = (name.split(".") for name in names)
            dotted = dict.fromkeys(".".join(each[:length]) for each in parts for length in range(1, len(each) + 1))
            found = (self._index.find(name, path) for name in dotted)  # the packages around a module run first
            self._asked[path] = core, tuple(dict.fromkeys(one.path for one in found if one is not None))
        return self._asked[path]


def _imports(module: Module) -> Iterator[str]:
    """The dotted names that a file imports at module level."""
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = module.absolute(node.module, node.level)
            yield from (home if alias.name == "*" else f"{home}.{alias.name}" for alias in node.names)
