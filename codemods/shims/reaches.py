"""How a file reaches the names of a module it does not import by name: attributes, `setattr` and mocks, dotted text."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted

# The last part of what is called, where something else is put in the place of the name.
_REPLACING = frozenset({"setattr", "delattr", "patch", "object", "multiple"})
_LONGEST = 4096  # no file has a longer path


@dataclass(frozen=True, eq=False)
class Reach:
    """One use of a module: the name reached, empty where only the module is to be seen."""

    node: ast.expr  # the module, or the text that names it
    name: str
    replaces: bool

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.node.lineno


class Reaches:
    """One file, asked for its uses of modules."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.named: defaultdict[str, list[ast.expr]] = defaultdict(list)  # by what they say: `m`, `a.b.c`
        for node in source.every(ast.Name, ast.Attribute):
            self.named[dotted(node)].append(node)
        self._known: dict[str, list[Reach]] = {}

    def through(self, module: str) -> list[Reach]:
        """Every use of a module that the file calls `module`: `m`, or `a.b.c` after `import a.b.c`."""
        if module not in self._known:
            self._known[module] = [reach for node in self.named.get(module, ()) for reach in self._through(node)]
        return self._known[module]

    def beyond(self, module: str) -> list[Reach]:
        """Every use of a module as an attribute of what has no name: `f().module`."""
        unnamed = (node for node in self.named.get("", ()) if isinstance(node, ast.Attribute) and node.attr == module)
        return [reach for node in unnamed for reach in self._through(node)]

    def _through(self, node: ast.expr) -> Iterator[Reach]:
        above = self.source.parents[node]
        call = self.source.parents[above] if isinstance(above, ast.keyword) else above
        if isinstance(above, ast.Attribute):
            yield Reach(node, above.attr, not isinstance(above.ctx, ast.Load))
        elif isinstance(call, ast.Call) and node is not call.func:
            others = [*call.args, *(keyword.value for keyword in call.keywords)]
            texts = [one.value for one in others if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            called = _called(call)
            names = texts[:1] if called != "multiple" else [keyword.arg or "" for keyword in call.keywords]
            for name in names or [""]:
                yield Reach(node, name, called in _REPLACING)
        else:
            yield Reach(node, "", False)

    def by_text(self, modules: Set[str], locate: Callable[[str], str | None]) -> Iterator[tuple[str, Reach]]:
        """Dotted texts that begin with a module which `locate` knows: its path, and what is reached in it.

        `modules` are the last parts of those that it may know.
        """
        for node in self.source.every(ast.Constant):
            text = node.value
            if not isinstance(text, str) or "." not in text or len(text) > _LONGEST:
                continue
            parts = text.replace(":", ".").split(".")
            if modules.isdisjoint(parts) or not all(part.isidentifier() for part in parts):
                continue
            for end in range(len(parts), 1, -1):
                if parts[end - 1] in modules and (path := locate(".".join(parts[:end]))):
                    name = parts[end] if end < len(parts) else ""
                    yield path, Reach(node, name, _called(self.source.parents[node]) in _REPLACING)
                    break

    @cached_property
    def words(self) -> set[str]:
        """Every attribute and every text that could be a name: all that may be reached where that cannot be seen."""
        constants = (node.value for node in self.source.every(ast.Constant))
        texts = {value for value in constants if isinstance(value, str) and value.isidentifier()}
        return texts | {node.attr for node in self.source.every(ast.Attribute)}


def _called(node: ast.AST) -> str:
    """The last part of the name of what is called; empty for what is no call."""
    return leaf(node.func) if isinstance(node, ast.Call) else ""
