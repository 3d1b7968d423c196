"""A finding back in its file: the statement that installs the patch and the function it puts in place."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mcore_unpatch.codemods.codemod import COMPAT, Situation
from mcore_unpatch.codemods.syntax import identifiers, is_stored, leaf, walk_without
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import Finding


@dataclass(frozen=True)
class Patch:
    """`target = value`, with the function behind the value where this file defines it."""

    situation: Situation
    source: Source
    statement: ast.Assign
    target: ast.Attribute
    value: ast.expr
    function: Function | None
    bound: bool  # the function's first parameter is the patched object
    around: Function | None  # the function that the statement stands in

    @property
    def finding(self) -> Finding:
        """What the scanner says of it."""
        return self.situation.finding

    def text(self, node: ast.expr) -> str:
        """The text of an expression."""
        return self.source.text(node)


def is_taken(name: str, source: Source) -> bool:
    """Whether a name is something else in a file than what the compat layer has by it."""
    if name.encode() not in source.data:
        return False
    tree = source.tree
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == COMPAT)
    ours = [alias for node in imports for alias in node.names if alias.name == name and not alias.asname]
    if not ours:
        return name in identifiers(tree)
    named = {getattr(node, key, "") for node in walk_without(tree, ours) for key in ("name", "arg")}
    return name in named or any(is_stored(node, name) for node in ast.walk(tree))


def find_patch(situation: Situation) -> Patch | None:
    """The patch of a finding; None if it is no plain assignment to one attribute."""
    finding = situation.finding
    source = situation.files.readable(finding.path)
    if source is None:
        return None
    statement = source.starting.get((finding.line, finding.column - 1))
    match statement:
        case ast.Assign(targets=[ast.Attribute() as target], value=value):
            pass
        case _:
            return None
    called, bound = function_name(value)
    around = source.function_of(statement)
    bound = bound or finding.shape in {"class-attr", "class-of-instance"}
    return Patch(situation, source, statement, target, value, defined(source.tree, called, around), bound, around)


def function_name(value: ast.expr) -> tuple[str, bool]:
    """The function's name in `f`, `f.__get__(x)` or `types.MethodType(f, x)`, and whether it is bound."""
    if isinstance(value, ast.Name):
        return value.id, False
    if isinstance(value, ast.Call):
        func = value.func
        if isinstance(func, ast.Attribute) and func.attr == "__get__" and isinstance(func.value, ast.Name):
            return func.value.id, True
        if leaf(func) == "MethodType" and value.args and isinstance(value.args[0], ast.Name):
            return value.args[0].id, True
    return "", False


def defined(tree: ast.Module, name: str, around: Function | None) -> Function | None:
    """The only function of that name in the scopes at hand."""
    for scope in (around, tree):
        body = ast.walk(scope) if scope is around and scope is not None else iter(getattr(scope, "body", ()))
        functions = [node for node in body if isinstance(node, Function) and node.name == name and node is not around]
        if functions:
            return functions[0] if len(functions) == 1 else None
    return None
