"""Pieces of Python as a library is written down: parameter lists, defaults, the classes of annotations, targets."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from mcore_unpatch.code.syntax import spelled

# Around the one class that matters in an annotation: `Optional[X]`, `list[X]`.
_CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Tuple", "tuple"}


def last_of(node: ast.expr) -> str:
    """The last name of a path, or of the path of what is called."""
    return spelled(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Every statement that runs when a module or class body runs, also below `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            for field in ("body", "handlers", "orelse", "finalbody"):
                yield from statements(getattr(node, field, ()))


def parameters_of(function: Any) -> str:
    """The parameter list as one line: names, `=` and a plain default behind one, `/`, `*`, `*name` and `**name`."""
    spec: ast.arguments = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(positional) - len(spec.defaults)), *spec.defaults]
    words = [arg.arg + default_text(default) for arg, default in zip(positional, defaults, strict=True)]
    if spec.posonlyargs:
        words.insert(len(spec.posonlyargs), "/")
    if spec.vararg:
        words.append(f"*{spec.vararg.arg}")
    elif spec.kwonlyargs:
        words.append("*")
    words += [arg.arg + default_text(default) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        words.append(f"**{spec.kwarg.arg}")
    return " ".join(words)


def default_text(node: ast.expr | None) -> str:
    """A default as the parameter list writes it: with its value where that is a plain constant."""
    if node is None:
        return ""
    value = node.value if isinstance(node, ast.Constant) else ...
    if isinstance(value, str):
        return f"={value!r}" if value.isidentifier() else "="
    return f"={value}" if isinstance(value, bool | int | float | None) else "="


def annotated(node: ast.expr | None) -> list[str]:
    """The classes an annotation names, as they are written."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return []
    if isinstance(node, ast.BinOp):
        return [*annotated(node.left), *annotated(node.right)]
    if isinstance(node, ast.Tuple):
        return [name for element in node.elts for name in annotated(element)]
    if isinstance(node, ast.Subscript):
        outer = last_of(node.value)
        return annotated(node.slice) if outer in _CONTAINERS else [outer]
    return [name] if node is not None and (name := spelled(node)) else []


def flat(target: ast.expr) -> Iterator[ast.expr]:
    """The targets of an assignment, one by one."""
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from flat(item)
    else:
        yield target


def targets_of(node: Any) -> list[str]:
    """The names that an assignment or a loop sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [item.id for target in targets for item in flat(target) if isinstance(item, ast.Name)]
