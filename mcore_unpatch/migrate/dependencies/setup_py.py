"""Literal `install_requires` and `extras_require` of a setup.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch.migrate.dependencies.bracketed import Bracketed, with_item
from mcore_unpatch.migrate.dependencies.listing import Listing, Span

_Key = tuple[str, ...]


class SetupPyList(Listing):
    """A list of strings that `setup()` is given, directly or by the name of a list of the module."""

    def __init__(self, file: Path, text: str, key: _Key, node: ast.List) -> None:
        self.key = key
        spans = [_span(text, item) for item in _strings(node)]
        start, end = _span(text, node)
        self.list = Bracketed(start, end - 1, spans)
        inside = [(first + 1, last - 1) for first, last in spans]
        super().__init__(file, text, _values(node), inside, key == ("install_requires",))

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The strings of the list, and the module without them."""
        tree = ast.parse(text)
        node = dict(_lists(tree))[self.key]
        found = _values(node)
        node.elts = [item for item in node.elts if not isinstance(item, ast.Constant)]
        return found, ast.dump(tree)

    def _with_requirement(self, requirement: str) -> str:
        return with_item(self.text, self.list, requirement)


def setup_py_lists(file: Path, text: str) -> Iterator[SetupPyList]:
    """Those of a file that consist of plain strings."""
    try:
        found = dict(_lists(ast.parse(text)))
    except (SyntaxError, ValueError):
        return
    for key, node in found.items():
        plain = [item for item in _strings(node) if text[_span(text, item)[0]] in "\"'"]
        if len(plain) == len(node.elts):
            yield SetupPyList(file, text, key, node)


def _lists(tree: ast.Module) -> Iterator[tuple[_Key, ast.List]]:
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and len(node.targets) == 1]
    names = [node.targets[0].id for node in assigned if isinstance(node.targets[0], ast.Name)]
    known = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}

    def resolved(value: ast.expr | None) -> ast.expr | None:
        return known.get(value.id) if isinstance(value, ast.Name) and names.count(value.id) == 1 else value

    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) == "setup":
            for keyword in call.keywords:
                value = resolved(keyword.value)
                if keyword.arg == "install_requires" and isinstance(value, ast.List):
                    yield ("install_requires",), value
                elif keyword.arg == "extras_require" and isinstance(value, ast.Dict):
                    for name, item in zip(value.keys, value.values, strict=True):
                        listed = resolved(item)
                        if isinstance(name, ast.Constant) and isinstance(listed, ast.List):
                            yield ("extras_require", str(name.value)), listed


def _strings(node: ast.List) -> list[ast.Constant]:
    return [item for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def _values(node: ast.List) -> list[str]:
    return [item.value for item in _strings(node) if isinstance(item.value, str)]


def _span(text: str, node: ast.expr) -> Span:
    """Offsets in the text; `ast` counts columns in bytes."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _offset(text, node.lineno, node.col_offset), _offset(text, node.end_lineno, node.end_col_offset)


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + len(lines[line - 1].encode()[:column].decode())
