"""Code as a text, and statements as short digests of it.

Both leave out what a reader may change freely: comments, formatting, docstrings, annotations.
"""

from __future__ import annotations

import ast
from functools import cache
from hashlib import blake2b

STATEMENT_BYTES = 2
DIGEST_BYTES = 4  # enough to tell that something changed, and a third less to ship
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_FULL = 6
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
    if kind is ast.FormattedValue:
        node = _as_shipped(node)  # type: ignore[arg-type]
    if isinstance(node, ast.AST):
        fields = []
        for name in _telling_fields(kind):  # type: ignore[arg-type]
            value = getattr(node, name, None)
            if value is None or value == [] or name in without:
                continue
            fields.append(f"{name}={value!r}" if value.__class__ is str else f"{name}={dump(value, package)}")
        return f"{kind.__name__}({','.join(fields)})"
    return repr(node)


def _as_shipped(node: ast.FormattedValue) -> ast.FormattedValue:
    """`{x:<{width}}` with the empty text that Python 3.12.1, on which the models were made, sees at its end."""
    spec = node.format_spec
    if isinstance(spec, ast.JoinedStr) and spec.values and isinstance(spec.values[-1], ast.FormattedValue):
        spec = ast.JoinedStr([*spec.values, ast.Constant("")])
    return ast.FormattedValue(node.value, node.conversion, spec)


def head(node: ast.stmt, package: str) -> bytes:
    """The digest of a statement without its blocks."""
    return blake2b(dump(node, package, _BLOCKS).encode(), digest_size=_FULL).digest()


def parts(node: ast.AST, package: str) -> bytes:
    """A digest for each statement of a definition in order, its own head first; each block ends with a mark."""
    collected: list[bytes] = []
    _collect(node, package, collected)
    return b"".join(collected)


@cache
def _blocks(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in _BLOCKS if name in kind._fields and kind is not ast.Lambda)


def _collect(node: ast.AST, package: str, collected: list[bytes]) -> None:
    kind = node.__class__
    if isinstance(node, ast.stmt):
        if kind is ast.Expr and is_text(node):
            return
        collected.append(head(node, package))
    for name in _blocks(kind):  # type: ignore[arg-type]
        if block := getattr(node, name, None):
            for child in block:
                _collect(child, package, collected)
            if name != "body":
                collected.append(_MARKS[name])


_MARKS = {name: bytes([number] * _FULL) for number, name in enumerate(_BLOCKS)}


def statements_of(parts_of: bytes) -> bytes:
    """The short form of the statements of a function, its head left out: a copy may have another name."""
    pieces = (parts_of[at : at + _FULL] for at in range(_FULL, len(parts_of), _FULL))
    return b"".join(piece[:STATEMENT_BYTES] for piece in pieces if piece not in _MARKS.values())


def digest_of(parts_of: bytes) -> bytes:
    """One digest for a whole definition."""
    return blake2b(parts_of, digest_size=DIGEST_BYTES).digest()


def statement_digests(function: ast.AST, package: str) -> bytes:
    """The short digests of a function's statements."""
    return statements_of(parts(function, package))


def split(statements: bytes) -> list[bytes]:
    """Short digests one by one."""
    return [statements[at : at + STATEMENT_BYTES] for at in range(0, len(statements), STATEMENT_BYTES)]
