"""Statements as short digests, which leave out what a reader may change freely."""

from __future__ import annotations

import ast
from functools import cache
from hashlib import blake2b

from mcore_unpatch.library.normal import dump, is_text

STATEMENT_BYTES = 2
DIGEST_BYTES = 4  # enough to tell that something changed, and a third less to ship
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_FULL = 6


def head(node: ast.stmt, package: str) -> bytes:
    """The digest of a statement without its blocks."""
    return blake2b(dump(node, package, _BLOCKS).encode(), digest_size=_FULL).digest()


def parts(node: ast.AST, package: str) -> bytes:
    """A digest for each statement of a definition in order, its own head first; each block ends with a mark."""
    found: list[bytes] = []
    _collect(node, package, found)
    return b"".join(found)


@cache
def _blocks(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in _BLOCKS if name in kind._fields and kind is not ast.Lambda)


def _collect(node: ast.AST, package: str, found: list[bytes]) -> None:
    kind = node.__class__
    if isinstance(node, ast.stmt):
        if kind is ast.Expr and is_text(node):
            return
        found.append(head(node, package))
    for name in _blocks(kind):  # type: ignore[arg-type]
        if block := getattr(node, name, None):
            for child in block:
                _collect(child, package, found)
            if name != "body":
                found.append(_MARKS[name])


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
