"""What the code around a patch says: where statements stand, which names are taken, and who looks on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from mcore_unpatch.codemods.seams.patch import Function
from mcore_unpatch.codemods.source import Source, Suite, suites
from mcore_unpatch.codemods.workbench import Workbench


class Surroundings:
    """One file, as a tree that can be climbed."""

    def __init__(self, source: Source, files: Workbench) -> None:
        self.source, self.files, self.tree = source, files, source.tree

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node above each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def home(self) -> dict[ast.stmt, Suite]:
        """The suite each statement stands in."""
        return {statement: suite for suite in suites(self.tree) for statement in suite}

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, Function):
                return node
        return None

    def at_line(self, line: int) -> list[ast.stmt]:
        """The statements that begin on a line."""
        return [statement for statement in self.home if statement.lineno == line]

    def empties(self, removed: Sequence[ast.AST]) -> bool:
        """Whether some block would be left with nothing in it."""
        return any(all(is_one_of(statement, removed) for statement in suite) for suite in suites(self.tree))

    def named_elsewhere(self, name: str) -> bool:
        """Whether another file says this name."""
        word = re.compile(rf"\b{re.escape(name)}\b".encode())
        return any(word.search(self.files.data(path)) for path in self.files.paths if path != self.source.path)


def is_one_of(node: ast.AST, nodes: Iterable[ast.AST]) -> bool:
    """Whether a node is one of these very nodes."""
    return any(node is one for one in nodes)


def walk_without(tree: ast.AST, left_out: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node but those below some."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not is_one_of(node, left_out):
            yield node
            waiting += ast.iter_child_nodes(node)


def names_outside(tree: ast.AST, gone: Sequence[ast.AST]) -> set[str]:
    """The names that code mentions which stays."""
    return {node.id for node in walk_without(tree, gone) if isinstance(node, ast.Name)}


def identifiers(tree: ast.AST) -> set[str]:
    """Every name that code reads or binds, by whatever statement."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        else:
            found.add(getattr(node, "name", None) or "")  # functions, classes, `except ... as`, patterns
    return found


def shared_names(function: Function) -> set[str]:
    """The names of a function that belong to others as well."""
    return {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
