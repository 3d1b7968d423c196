"""Whether the library's own definition of a name is the same on two releases, apart from its words and its types."""

import ast
import hashlib
import importlib
import inspect
import textwrap
from typing import Any


def digest(target: str) -> str | None:
    """Of the source that a dotted name stands for on the release that is imported; None where there is none."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(_resolve(target))))
    except (AttributeError, ImportError, TypeError, OSError):
        return None
    tree = _Bare().visit(ast.parse(source))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def compared(older: str | None, newer: str | None) -> str | None:
    """What became of the definition: same, changed, gone, new, or None where neither release has one."""
    if older is None or newer is None:
        return None if older == newer else "gone" if newer is None else "new"
    return "same" if older == newer else "changed"


def _resolve(target: str) -> Any:
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            value = getattr(value, name)
        return value
    raise ImportError(target)


class _Bare(ast.NodeTransformer):
    """Without docstrings, annotations and the types of parameters."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node
