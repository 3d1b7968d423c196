"""The library's source text, changed: taken with `inspect`, edited and executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.module import Module
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name, scope_of
from mcore_unpatch.code.values import Kind
from mcore_unpatch.patches.records import Patch, Spelling

_SOURCES = ("getsource", "getsourcelines")


def rewrites(names: Names, module: Module) -> Iterator[Patch]:
    """`inspect.getsource(X)` and `exec` in one function: one patch of X, at the `exec`."""
    executed = [call for call in module.calls if last_name(call.func) == "exec"]
    for call in module.calls if executed else ():
        if last_name(call.func) not in _SOURCES or not call.args:
            continue
        around = scope_of(call).function()
        runner = next((one for one in executed if scope_of(one).function() is around), None)
        for value in names.of(call.args[0]) if runner is not None else ():
            if value.kind in (Kind.MODULE, Kind.CLASS, Kind.FUNCTION) and names.library.within(value.name):
                assert isinstance(runner, ast.Call)
                yield Patch(module, runner, value.name, Spelling.SOURCE_REWRITE)
