"""The library's source text, changed: taken with `inspect` and executed, or written back to its file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.code.module import Module
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name, own_nodes, scope_of, text_of
from mcore_unpatch.code.values import Kind
from mcore_unpatch.patches.records import Confidence, Patch, Spelling

_SOURCES = ("getsource", "getsourcelines")
_FILE = re.compile(r"(?:^|/)([\w/]+)\.py$")
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
    """A file is written, and the function around it, or all of the file, names one source file of the library."""
    for call in written:
        around = scope_of(call).outermost_function()
        named = _named(names, own_nodes(around.node, ast.Constant, ast.Attribute)) if around is not None else []
        named = named or _named(names, list(ast.walk(module.tree)))
        if named:
            yield Patch(module, call, named[0], Spelling.SOURCE_REWRITE, Confidence.LIKELY)


def _named(names: Names, nodes: list[ast.AST]) -> list[str]:
    """The modules of the library whose file some nodes name: by a path in a text, by `module.__file__`."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "__file__":
            modules = (value for value in names.of(node.value) if value.kind == Kind.MODULE and value.node is None)
            found += [value.name for value in modules]
        elif (text := text_of(node)) is not None and len(text) < 200 and (path := _FILE.search(text)) is not None:
            dotted = path[1].strip("/").replace("/", ".").removesuffix(".__init__")
            found += [dotted] if names.library.is_module(dotted) else []
    return found
