"""Code as a text that leaves out what a reader may change freely: comments, formatting, docstrings, annotations."""

from __future__ import annotations

import ast
from functools import cache

# Fields that say nothing about what the code does, or that only some versions of Python have.
_IGNORED = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores", "simple"}


def without_package(module: str, package: str) -> str:
    """`package.a.b` as `.a.b`; other modules as they are."""
    top, _, rest = module.partition(".")
    return f".{rest}" if top == package else module


def is_text(node: object) -> bool:
    """A string that stands alone: a docstring, or a comment in disguise."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _telling_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in _IGNORED)


def dump(node: object, package: str, without: tuple[str, ...] = ()) -> str:
    """Like `ast.dump`, the same on every version of Python; the commonest nodes first, for speed."""
    kind = node.__class__
    if kind is ast.Name:
        return f"Name(id={node.id!r})"  # type: ignore[attr-defined]
    if kind is ast.Attribute:
        return f"Attribute(value={dump(node.value, package)},attr={node.attr!r})"  # type: ignore[attr-defined]
    if kind is ast.Constant:
        return "Constant()" if node.value is None else f"Constant(value={node.value!r})"  # type: ignore[attr-defined]
    if kind is list:
        items: list[object] = node  # type: ignore[assignment]
        return f"[{','.join([dump(item, package) for item in items if not is_text(item)])}]"
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return f"Assign([{dump(node.target, package)}]{dump(node.value, package)})"
    if isinstance(node, ast.ImportFrom):
        names = [(alias.name, alias.asname) for alias in node.names]
        return f"ImportFrom({node.level}{without_package(node.module or '', package)}{names})"
    if isinstance(node, ast.AST):
        fields = []
        for name in _telling_fields(kind):  # type: ignore[arg-type]
            value = getattr(node, name, None)
            if value is None or value == [] or name in without:
                continue
            fields.append(f"{name}={value!r}" if value.__class__ is str else f"{name}={dump(value, package)}")
        return f"{kind.__name__}({','.join(fields)})"
    return repr(node)
