"""What the library's own calls of a replacement leave out: what only those arguments lead to does not run."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.demands import Demand
from mcore_unpatch.library.fact import Call
from mcore_unpatch.library.model import Model
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode


def lets(
    demand: Demand, function: FunctionNode | ast.Lambda | None, bound: bool, calls: Sequence[Call], model: Model
) -> bool:
    """Whether some calls of a function, of a method if it is bound, get as far as a demand in it; none tell nothing."""
    around = demand.at.scope.function
    if not calls or around is None or around.node is not function or isinstance(function, ast.Lambda):
        return True
    assert function is not None
    given = _left_out(function, calls, bound, demand)
    return not given or reached.on(model, demand.at._replace(given=given), demand.tests)


def _left_out(function: FunctionNode, calls: Sequence[Call], bound: bool, demand: Demand) -> dict[str, object]:
    """The parameters with a plain default that nobody passes or sets: no call, and not the function's file."""
    spec = function.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    defaults |= {one.arg: value for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    plain: dict[str, object] = {name: one.value for name, one in defaults.items() if isinstance(one, ast.Constant)}
    if not plain or any(call.star or call.double_star for call in calls):
        return {}
    passed = {name for call in calls for name in (*call.keywords, *names[: call.positions + bound])}
    for node in walk(demand.at.home.model.tree):
        if isinstance(node, ast.Call):
            passed |= {word.arg for word in node.keywords if word.arg}
    passed |= {node.id for node in walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {name: value for name, value in plain.items() if name not in passed}
