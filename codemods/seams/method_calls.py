"""Calls of a method that code adds to Megatron's objects, as calls of a function with the object."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace
from mcore_unpatch.codemods.codemod import AddImport, Elsewhere, Fix, Left
from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.repository.paths import is_test

IsSuch = Callable[[Source, ast.expr], bool]


@dataclass(frozen=True)
class MethodCalls:
    """The calls in all files of methods that some statements of one file add; `is_such` tells their objects."""

    files: Workbench
    source: Source
    adding: Container[ast.AST]
    is_such: IsSuch
    reaches: Callable[[Source], str] = lambda _: ""  # the module that others may import the function from
    is_kind: Callable[[str], bool] = lambda _: True  # whether objects of a class are called what these are

    def replaced(self, method: str, function: str, given: Function | None = None) -> Iterator[Fix]:
        """Every call of a method as one of the function, which is new unless it is `given`; or why one cannot be."""
        files = self.files
        if function == method and given is None and not is_free(self.source, function):
            yield Left(f"the name `{function}` is taken")
        sources = list(files.sources_naming(method))
        elsewhere = [
            (file, node)
            for file in sources
            for node in (*file.every(ast.FunctionDef), *file.every(ast.AsyncFunctionDef))
            if getattr(node, "name", "") == method and node is not given
        ]
        owners = (
            above.name for file, node in elsewhere for above in file.above(node) if isinstance(above, ast.ClassDef)
        )
        alike = any(map(self.is_kind, owners)) if given else bool(elsewhere)
        if alike and (given or function != method):  # which asks for no class, and would run for any object
            yield Left(f"another `{method}` is defined in this repository")
        for source in sources:
            module = self._module(source)
            made: list[Change] = []
            knows = source is self.source or bool(module)
            for text in (node for node in source.every(ast.Constant) if node.value == method):
                call = source.parents[text]
                if not isinstance(call, ast.Call) or not call.args or source.parents[call] in self.adding:
                    continue
                if self.is_such(source, call.args[0]):
                    yield Left(f"{source.path}:{text.lineno} asks for `{method}` by name")
            for node in source.every(ast.Attribute):
                told, call = f"{source.path}:{node.lineno}", source.parents[node]
                if node.attr != method or call in self.adding:
                    continue
                mine = self.is_such(source, node.value)
                if mine and not knows:
                    yield Left(f"{told} calls `{method}` and imports nothing from {self.source.path}")
                elif mine and isinstance(call, ast.Call) and call.func is node:
                    made.append(Replace(call, _with_object(source, call, function)))
                    inside = [part for part in ast.walk(call) if part is not node]
                    if any(isinstance(part, ast.Constant) and part.lineno != part.end_lineno for part in inside):
                        yield Left(f"{told} has a text of several lines, which would move")
                    if any(isinstance(part, ast.Attribute) and part.attr == method for part in inside):
                        yield Left(f"{told} calls `{method}` within a call of it")
                elif mine or (knows and not _is_own(source, node)):
                    yield Left(f"{told} uses `{method}` of what may be the same object")
                elif not knows and not elsewhere and not is_test(source.path):
                    yield Left(f"{told} calls `{method}` of what may be the same object")
            if made and source is not self.source and not self._has(source, function):
                if not is_free(source, function) or source.path not in files.editable:
                    yield Left(f"{source.path} has another `{function}`, or is not part of this migration")
                yield Elsewhere(source, AddImport(module, function))
            yield from (Elsewhere(source, change) for change in made)

    def _has(self, source: Source, function: str) -> bool:
        """Whether a file imports the function already."""
        imports = (node for node in source.tree.body if isinstance(node, ast.ImportFrom))
        names = ((node, alias) for node in imports for alias in node.names)
        return any(alias.name == function and not alias.asname and self._is_ours(source, node) for node, alias in names)

    def _is_ours(self, source: Source, node: ast.ImportFrom) -> bool:
        return self.files.locate(source.path, node.module or "", node.level) == self.source.path

    def _module(self, source: Source) -> str:
        """The module that a file imports the functions from, or may."""
        for node in source.tree.body:
            if isinstance(node, ast.ImportFrom) and not node.level and self._is_ours(source, node):
                return node.module or ""
        return self.reaches(source)


def name_of(node: ast.expr) -> str:
    """The last part of a name, or of what an element is taken from."""
    return leaf(node.value) if isinstance(node, ast.Subscript) else leaf(node)


def _is_own(source: Source, node: ast.Attribute) -> bool:
    """`self.name` in a class that defines it."""
    classes = (cls for cls in source.above(node) if isinstance(cls, ast.ClassDef))
    defined = {item.name for around in classes for item in around.body if isinstance(item, Function)}
    return leaf(node.value) == "self" and node.attr in defined


def is_free(source: Source, name: str) -> bool:
    """Whether a file means nothing else by a name; methods have theirs in their class."""
    own = {id(node) for cls in source.every(ast.ClassDef) for node in cls.body if isinstance(node, Function)}
    return not any(
        name in (getattr(node, "id", ""), getattr(node, "arg", ""), getattr(node, "name", "")) and id(node) not in own
        for node in source.every(ast.Name, ast.arg, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    )


def _with_object(source: Source, call: ast.Call, function: str) -> str:
    """`function(x, ...)` for `x.method(...)`, laid out as it is."""
    assert isinstance(call.func, ast.Attribute)
    statement = next(node for node in source.above(call) if isinstance(node, ast.stmt))
    rest = source.text(call)[len(source.text(call.func)) :].removeprefix("(")
    # What is inside brackets is indented with the statement.
    rest = rest.replace(f"\n{source.indentation(statement)}", "\n")
    space = rest[: len(rest) - len(rest.lstrip())]
    given = ", " if call.args or call.keywords else ""
    return f"{function}({space}{source.text(call.func.value)}{given}{rest.lstrip()}"
