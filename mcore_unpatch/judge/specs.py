"""Code that opens the specs that Megatron makes (`spec.submodules.mlp.module`), where a release puts no spec there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from mcore_unpatch.judge.asked import raising
from mcore_unpatch.judge.demands import CALL, IMPORT, Demand
from mcore_unpatch.judge.instead import leaf
from mcore_unpatch.judge.meaning import only_value, written
from mcore_unpatch.judge.statement import CHANGES, Statement
from mcore_unpatch.library.fact import quoted
from mcore_unpatch.library.model import Model
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.nodes import walk

_SPEC = "ModuleSpec"
_PARTS = {"module", "submodules", "params"}  # of a spec
_HOLDS = "submodules"
_OPENS = ast.Attribute | ast.Call
_LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break
_READER = "megatron.core.transformer.spec_utils.get_submodules"
_ADVICE = "Megatron calls it to build the module: put in your class, or a `functools.partial` of it"


def opened(home: Resolver, old: Model, new: Model, is_own: Callable[[str], bool]) -> Iterator[Statement]:
    """Parts that are read or set of what is no ModuleSpec any more, and tests for one.

    is_own: whether the repository fills a field with a ModuleSpec itself. Then its own specs may be meant.
    """
    was, now = _declared(old), _declared(new)
    changed = [field for field in was if is_spec(field, old) and not is_spec(field, new)]
    fields = {field: now[field] for field in changed} if _HOLDS.encode() in home.model.data else {}
    nodes = [*walk(home.model.tree)] if any(field.encode() in home.model.data for field in fields) else []
    asked = {name for node in nodes if isinstance(node, ast.Call) for name in _asked_for(node)}
    lines: set[int] = set()
    inside_first = sorted((one for one in nodes if isinstance(one, _OPENS)), key=lambda node: node.end_col_offset or 0)
    openings = [(node, *_opening(node, home)) for node in inside_first]
    specs = {field for _, field, part in openings if part and field in fields}  # a test alone tells nothing
    on_line: dict[int, dict[str, None]] = defaultdict(dict)  # the fields that are opened there
    for node, field, _ in openings:
        on_line[node.lineno] |= {field: None} if field in specs else {}
    ifs = [node for node in nodes if isinstance(node, ast.If | ast.IfExp)] if specs else []
    tests = {field: [node for node in ifs if _asks(node.test, field)] for field in specs}
    asserted = {id(part) for node in nodes if isinstance(node, ast.Assert) for part in _all_of(node.test)}
    read_too = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    for node, field, part in openings:
        if field not in specs or part in asked or node.lineno in lines:
            continue
        at = home.on_line(node.lineno)
        if any(_tells_apart(test, node, part, at) for test in tests[field]):
            continue
        demand = Demand(f"{fields[field][0]}.{field}", CALL if at.scope.function else IMPORT, at, through_class=True)
        exception = "AssertionError" if id(node) in asserted else "AttributeError"
        if not demand.runs_on(new, exception):
            continue
        lines.add(node.lineno)
        others = [other for other in on_line[node.lineno] if other != field]
        too = f"; the same is true of {quoted(others)}" if others else ""
        own = "; a spec of your own is what you make it" if is_own(field) and not _is_megatrons(node, home) else ""
        text = f"`{field}` of the specs that Megatron makes is no {_SPEC} on megatron-core {new.label} but a "
        text += f"`{fields[field][1]}`"
        stored = isinstance(getattr(node, "ctx", None), ast.Store) and id(node) not in read_too
        effect = f", without `{part}`" if part else ": the test is false" + (" of those" if own else "")
        effect = ": nobody reads what is set here" if stored else effect
        reads = part == _HOLDS and not stored and new.find(_READER) is not None
        advice = f"`{_READER}` reads them, of a {_SPEC} too" if reads else _ADVICE
        said = raising(demand, exception, f"{text}{effect}{too}{own}", new, advice)
        if stored or own or (not part and exception == "AttributeError"):
            said = replace(said, kind=CHANGES, exception="", trigger="")
        yield replace(said, demand=demand)


def fills(field: str, texts: Iterable[bytes]) -> bool:
    """Whether some file puts a ModuleSpec into a field."""
    made = re.compile(rb"\b%b\s*=\s*(?:[\w.]+\()*(?:\w+\.)*%b\(" % (field.encode(), _SPEC.encode()))
    return any(made.search(text) for text in texts)


def is_spec(field: str, model: Model) -> bool:
    """Whether a release has a ModuleSpec in a field of its specs, as far as is known."""
    return _declared(model).get(field, ("", _SPEC))[1] == _SPEC


@cache
def _declared(model: Model) -> dict[str, tuple[str, str]]:
    """The fields of all `...Submodules`: whose, and what they are declared; a ModuleSpec where some of them are."""
    declared: dict[str, tuple[str, str]] = {}
    for name, fact in model.facts.items():
        owner, _, field = name.rpartition(".")
        kind = leaf(fact.trait("type") or "")
        if owner.endswith("Submodules") and kind and (kind == _SPEC or field not in declared):
            declared[field] = owner, kind
    return declared


def _opening(node: ast.expr, home: Resolver) -> tuple[str, str]:
    """The field that an expression takes for a spec, and the part that it opens: none where it only asks."""
    match node:
        case ast.Attribute(value=inner, attr=part) if part in _PARTS:
            return _field(inner, home), part
        case ast.Call(func=ast.Name(id="isinstance"), args=[inner, ast.Name(id=kind)]) if kind == _SPEC:
            return _field(inner, home), ""
    return "", ""


def _field(node: ast.expr, home: Resolver) -> str:
    """`mlp` of `spec.submodules.mlp`, also by a variable."""
    if isinstance(node, ast.Name):
        node = only_value(node, home) or node
    if not isinstance(node, ast.Attribute):
        return ""
    holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    # A parameter for submodules of its own holds what no spec of Megatron's does.
    kinds = (getattr(one.node, "annotation", None) for one in home.on_line(node.lineno).scope.bindings_of(holder))
    own = any(isinstance(kind, ast.Name) and written(kind, home) is None for kind in kinds)
    return node.attr if holder.endswith(_HOLDS) and not own else ""


def _all_of(test: ast.expr) -> Iterator[ast.expr]:
    """The tests that have to hold for one to: itself, or those between its `and`s."""
    several = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
    yield from (part for value in test.values for part in _all_of(value)) if several else (test,)  # type: ignore[attr-defined]


def _is_megatrons(node: ast.expr, home: Resolver) -> bool:
    """Whether a function of Megatron's made the spec that an expression begins with."""
    root: ast.AST = node
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    made = only_value(root, home) if isinstance(root, ast.Name) else None
    maker = made.func if isinstance(made, ast.Call) else None
    return isinstance(maker, ast.Attribute | ast.Name) and written(maker, home) is not None


def _tells_apart(test: ast.If | ast.IfExp, node: ast.expr, part: str, at: Position) -> bool:
    """Whether a test for what a field is, that has another branch or leaves, stands around or above."""
    end = test.end_lineno or 0
    if test.lineno <= node.lineno <= end:
        return bool(part or test.orelse) or all(part is not node for part in ast.walk(test.test))
    if not isinstance(test, ast.If) or not isinstance(test.body[-1], _LEAVES) or end >= node.lineno:
        return False
    guard = at.home.on_line(test.lineno)
    block = guard.block.parent if guard.block.owner is test else guard.block  # all of it may stand on one line
    return guard.scope is at.scope and block is not None and at.block.within(block)


def _asks(test: ast.expr, field: str) -> bool:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call) and node.args)
    return any(
        getattr(call.func, "id", "") == "isinstance" and getattr(call.args[0], "attr", "") == field for call in calls
    )


def _asked_for(node: ast.Call) -> Iterator[str]:
    """The name in `hasattr(part, "name")`: who asks for it once knows that it may not be there."""
    if isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
        yield from (one.value for one in node.args[1:2] if isinstance(one, ast.Constant) and isinstance(one.value, str))
