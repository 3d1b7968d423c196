"""A finding back in its file: the statement that installs the patch and the function it puts in place."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mcore_unpatch.codemods.source import Source
from mcore_unpatch.findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Patch:
    """`target = value`, with the function behind the value where this file defines it."""

    finding: Finding
    source: Source
    statement: ast.Assign
    target: ast.Attribute
    function: Function | None
    bound: bool  # the function's first parameter is the patched object
    around: Function | None  # the function that the statement stands in

    @property
    def owner(self) -> str:
        """The class that is patched."""
        return self.finding.target.rpartition(".")[0]

    def text(self, node: ast.expr) -> str:
        """The text of an expression."""
        return self.source.text_of(self.source.span(node))


def find_patch(finding: Finding, source: Source) -> Patch | None:
    """The patch of a finding; None if it is no plain assignment to one attribute."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and node.lineno == finding.line and node.col_offset == finding.column - 1:
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Attribute):
                return None
            name, bound = _function_name(node.value)
            around = _around(source.tree, node)
            bound = bound or finding.shape in {"class-attr", "class-of-instance"}
            return Patch(finding, source, node, target, _defined(source.tree, name, around), bound, around)
    return None


def _function_name(value: ast.expr) -> tuple[str, bool]:
    """The function's name in `f`, `f.__get__(x)` or `types.MethodType(f, x)`, and whether it is bound."""
    if isinstance(value, ast.Name):
        return value.id, False
    if isinstance(value, ast.Call):
        func = value.func
        if isinstance(func, ast.Attribute) and func.attr == "__get__" and isinstance(func.value, ast.Name):
            return func.value.id, True
        leaf = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if leaf == "MethodType" and value.args and isinstance(value.args[0], ast.Name):
            return value.args[0].id, True
    return "", False


def _around(tree: ast.Module, statement: ast.stmt) -> Function | None:
    """The innermost function around a statement."""
    found: Function | None = None
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.lineno < statement.lineno <= (node.end_lineno or 0):
            found = node if found is None or node.lineno > found.lineno else found
    return found


def _defined(tree: ast.Module, name: str, around: Function | None) -> Function | None:
    """The only function of that name in the scopes at hand."""
    for scope in (around, tree):
        body = ast.walk(scope) if scope is around and scope is not None else iter(getattr(scope, "body", ()))
        found = [node for node in body if isinstance(node, Function) and node.name == name and node is not around]
        if found:
            return found[0] if len(found) == 1 else None
    return None
