"""The library's source text, changed: taken with `inspect` and executed, or written back to its file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name, own_nodes, text_of, walk
from mcore_unpatch.code.values import Kind
from mcore_unpatch.patches.records import Confidence, Patch, Spelling

_SOURCES = ("getsource", "getsourcelines")
_FILE = re.compile(r"([\w/]+)\.py$")
_PATHS = (ast.Constant, ast.Attribute, ast.JoinedStr, ast.BinOp, ast.Call)
_LONGEST = 200  # letters of a path
_FOR_WRITING = ("w", "w+", "r+", "wt")


def rewrites(names: Names, module: Module) -> Iterator[Patch]:
    """The patches that a file makes of source text."""
    executed = [call for call in module.calls if last_name(call.func) == "exec"]
    written = [call for call in module.calls if _is_written(call)]
    if executed:
        yield from _executed(names, module, executed)
    if written:
        yield from _written(names, module, written)


def _executed(names: Names, module: Module, executed: list[ast.Call]) -> Iterator[Patch]:
    """`inspect.getsource(X)` and `exec` in one function: one patch of X, at the `exec`."""
    for call in module.calls:
        if last_name(call.func) not in _SOURCES or not call.args:
            continue
        around = scope_of(call).function()
        runner = next((one for one in executed if scope_of(one).function() is around), None)
        for value in names.settled(names.of(call.args[0])) if runner is not None else ():
            if value.kind in (Kind.MODULE, Kind.CLASS, Kind.FUNCTION) and names.library.within(value.name):
                yield Patch(module, runner, value.name, Spelling.SOURCE_REWRITE)


def _is_written(call: ast.Call) -> bool:
    """`open(path, "w")`, `path.write_text(text)`."""
    if last_name(call.func) == "open":
        return len(call.args) > 1 and text_of(call.args[1]) in _FOR_WRITING
    return last_name(call.func) == "write_text"


def _written(names: Names, module: Module, written: list[ast.Call]) -> Iterator[Patch]:
    """A file is written, and the function around it names one source file of the library; or the whole file does."""
    told: set[str] = set()
    for call in written:
        around = scope_of(call).outermost_function()
        named = _named(names, own_nodes(around.node, *_PATHS)) if around is not None else []
        if not named and not told:
            named = _named(names, [node for node in walk(module.tree) if isinstance(node, _PATHS)])
        if named and named[0] not in told:
            told.add(named[0])
            yield Patch(module, call, named[0], Spelling.SOURCE_REWRITE, Confidence.LIKELY)


def _named(names: Names, nodes: list[ast.AST]) -> list[str]:
    """The modules of the library whose file some nodes name: by a path, or by `module.__file__`."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Attribute):
            modules = names.of(node.value) if node.attr == "__file__" else ()
            found += [value.name for value in modules if value.kind == Kind.MODULE and value.node is None]
        elif (path := _FILE.search(_path(node))) is not None and len(path[1]) < _LONGEST:
            parts = path[1].removesuffix("/__init__").split("/")
            dotted = (".".join(parts[start:]) for start in range(len(parts)))
            found += [name for name in dotted if names.library.is_module(name)][:1]
    return found


def _path(node: ast.AST) -> str:
    """The text of a path, as far as it is written out: `os.path.join(root, "a", "b.py")`, `root / "a" / "b.py"`."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return f"{_path(node.left)}/{_path(node.right)}"
    if isinstance(node, ast.Call) and last_name(node.func) in ("join", "joinpath"):
        return "/".join(_path(part) for part in node.args)
    return text_of(node) or ""
