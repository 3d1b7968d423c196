"""How a file reaches the names of a module it does not import by name: attributes, `setattr` and mocks, dotted text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# The last part of what is called, where something else is put in the place of the name.
_REPLACING = frozenset({"setattr", "delattr", "patch", "object", "multiple"})


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

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def through(self, module: str) -> list[Reach]:
        """Every use of a module that the file calls `module`: `m`, or `a.b.c` after `import a.b.c`."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name | ast.Attribute))
        return [reach for node in nodes if dotted(node) == module for reach in self._through(node)]

    def _through(self, node: ast.expr) -> Iterator[Reach]:
        above = self._parents[node]
        call = self._parents[above] if isinstance(above, ast.keyword) else above
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

    def by_text(self, locate: Callable[[str], str | None]) -> Iterator[tuple[str, Reach]]:
        """Dotted texts that begin with a module which `locate` knows: its path, and what is reached in it."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "." not in node.value:
                continue
            parts = node.value.replace(":", ".").split(".")
            if not all(part.isidentifier() for part in parts):
                continue
            for end in range(len(parts), 1, -1):
                if path := locate(".".join(parts[:end])):
                    name = parts[end] if end < len(parts) else ""
                    yield path, Reach(node, name, _called(self._parents[node]) in _REPLACING)
                    break

    def words(self) -> set[str]:
        """Every attribute and every text that could be a name: all that may be reached where that cannot be seen."""
        found = {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        constants = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return found | {value for value in constants if isinstance(value, str) and value.isidentifier()}


def _called(node: ast.AST) -> str:
    """The last part of the name of what is called; empty for what is no call."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value)):
        return f"{inner}.{node.attr}"
    return ""
