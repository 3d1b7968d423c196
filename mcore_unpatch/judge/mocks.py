"""What the mocks of a test replace, and read: told by how they are written."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import path_text

_MOCKERS = {"object": ".patch", "setattr": "monkeypatch", "delattr": "monkeypatch"}  # by what is called of them
_FAKE = re.compile(rb"(?:SimpleNamespace|Mock)\(")


def makes_fakes(data: bytes) -> bool:
    """Whether a file makes objects that stand for others."""
    return _FAKE.search(data) is not None


def may_create(node: ast.AST) -> bool:
    """Whether a mock may set a name that is not there: `create=True`, `raising=False`, or what is not evident."""
    refused = {"create": False, "raising": True}
    words = ((word.arg, getattr(word.value, "value", None)) for word in getattr(node, "keywords", ()))
    return any(name is None or (name in refused and given is not refused[name]) for name, given in words)


def replaced_in(tree: ast.Module) -> set[str]:
    """The names that mocks of a file replace, wherever that is."""
    replaced = set()
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr=verb), args=[_, ast.Constant(value=str(name)), *_]):
                replaced |= {name} if f".{path_text(of) or ''}".endswith(_MOCKERS.get(verb, "?")) else set()
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                is_patch = (path_text(function) or "").rpartition(".")[2] == "patch"
                replaced |= {name.rpartition(".")[2]} if is_patch else set()
    return replaced


def mocked(node: ast.Call) -> ast.Attribute | None:
    """What `patch.object(x, "name", ...)` and `monkeypatch.setattr(x, "name", ...)` read, unless they may create it."""
    if may_create(node):
        return None
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=verb), args=[owner, ast.Constant(value=str(name)), *_]):
            mocker = f".{path_text(of) or ''}".endswith(_MOCKERS.get(verb, "?"))
            return ast.copy_location(ast.Attribute(owner, name, ast.Load()), node) if mocker else None
    return None
