"""The calls of one module, by the name they are written with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.scanner.sources.effort import Effort
from mcore_unpatch.scanner.sources.nodes import calls_on
from mcore_unpatch.scanner.sources.scopes import Block, FunctionNode, ModuleModel, Scope, last_attribute, path_text

_CALLED = re.compile(rb"\s*+\(")
_IN_A_NAME = re.compile(rb"[\w\x80-\xff]")


class Callers:
    """Looks for calls where the text of the file has a name and a parenthesis: most files are never asked."""

    def __init__(self, model: ModuleModel) -> None:
        self._model = model
        self._known: dict[str, list[tuple[ast.Call, Scope, Block]]] = {}

    def of(self, name: str, effort: Effort) -> list[tuple[ast.Call, Scope, Block]]:
        """Calls whose function is written `name` or `something.name`."""
        if name not in self._known:
            known: dict[ast.Call, tuple[Scope, Block]] = {}
            for line in self._lines(name.encode()):
                for statement, scope, block in self._around(line):
                    parts = (statement, *getattr(statement, "decorator_list", ()))
                    calls = [c for part in parts for c in calls_on(part, [line]) if last_attribute(c.func) == name]
                    effort.spend(1 + len(calls))
                    for call in calls:
                        known.setdefault(call, (scope, block))
            self._known[name] = [(call, *place) for call, place in known.items()]
        return self._known[name]

    def _around(self, line: int) -> Iterator[tuple[ast.stmt, Scope, Block]]:
        """The statements on a line, the innermost first: a body may stand on the line of what it is of."""
        scope, block = self._model.at(line)
        yield from ((statement, scope, block) for statement in self._model.statements_at(line))
        while block.owner is not None and block.parent is not None and block.owner.lineno == line:
            if block is scope.block and scope.parent is not None:
                scope = scope.parent
            owner, block = block.owner, block.parent
            yield owner, scope, block

    def appends(self, name: str, scope: Scope, effort: Effort) -> list[tuple[ast.Call, Block]]:
        """`name.append(item)` in one scope."""
        if self._appends is None:
            self._appends = {}
            for call, caller, block in self.of("append", effort):
                self._appends.setdefault((caller, path_text(call.func)), []).append((call, block))
        return self._appends.get((scope, f"{name}.append"), [])

    _appends: dict[tuple[Scope, str | None], list[tuple[ast.Call, Block]]] | None = None

    def _lines(self, name: bytes) -> dict[int, None]:
        """The lines where a name stands before a parenthesis."""
        data, lines = self._model.data, dict[int, None]()
        position, line, start = 0, 1, data.find(name)
        while start >= 0:
            end = start + len(name)
            if _CALLED.match(data, end) and not _IN_A_NAME.match(data, start - 1 if start else end):
                line += data.count(b"\n", position, start)
                position = start
                lines[line] = None
            start = data.find(name, end)
        return lines


def argument(call: ast.Call, function: FunctionNode, name: str, is_method: bool) -> ast.expr | None:
    """The expression a call passes for parameter `name`."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [arg.arg for arg in [*function.args.posonlyargs, *function.args.args]]
    if is_method and (isinstance(call.func, ast.Attribute) or function.name == "__init__"):
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        value = call.args[names.index(name)]
        return None if isinstance(value, ast.Starred) else value
    return None


def with_defaults(function: FunctionNode) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function, each with its default."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(positional) - len(spec.defaults)), *spec.defaults, *spec.kw_defaults]
    return list(zip((*positional, *spec.kwonlyargs), defaults, strict=True))


def called_as(function: FunctionNode, scope: Scope | None) -> str:
    """The name by which a function of a scope is called; a class by its own."""
    is_init = function.name == "__init__" and scope is not None and isinstance(scope.node, ast.ClassDef)
    return scope.node.name if is_init else function.name  # type: ignore[union-attr]
