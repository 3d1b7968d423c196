"""What a repository reads of Megatron's arguments (`get_args().name`) and sets of its state: is it still there?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.asked import raising
from mcore_unpatch.judge.demands import CALL, IMPORT, Demand
from mcore_unpatch.judge.instead import absent, short
from mcore_unpatch.judge.meaning import only_value, written
from mcore_unpatch.judge.statement import CHANGES, Statement
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.versions import TRAINING
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode

MAKER = "get_args"
_MAKERS = (MAKER, ".parse_args")
_ALIKE = 0.8
_DEEPEST = 3  # functions that hand on what they were given


def gone(home: Resolver, old: Model, new: Model) -> Iterator[Statement]:
    """Options that the older release has and the newer one has not, where they are read."""
    lost = old.options - new.options if new.options else frozenset()
    if not lost or TRAINING.encode() not in home.model.data:
        return
    nodes = list(walk(home.model.tree))
    asked = {text for node in nodes if isinstance(node, ast.Call) for text in asked_for(node)}
    for node in nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node.attr not in lost - asked:
            continue
        at = Position(home, *home.model.at(node.lineno), node.lineno)
        demand = Demand(f"{TRAINING}.{MAKER}.{node.attr}", CALL if at.scope.function else IMPORT, at)
        if _is_made(node.value, home, old) and demand.runs_on(new, "AttributeError"):
            fresh = [name for name in new.options - old.options if _differ_in_a_word(node.attr, name)]
            now = get_close_matches(node.attr, sorted(fresh), 1, _ALIKE)
            instead = f"`args.{now[0]}` is the closest match" if now else ""
            text = f"`args.{node.attr}` is made by no option of megatron-core {new.label}"
            yield replace(raising(demand, "AttributeError", text, new, instead), caller=demand.name)


def _differ_in_a_word(option: str, other: str) -> bool:
    """Whether a word of a name is another one: with more words, or less, it means something else."""
    words, others = option.split("_"), other.split("_")
    return len(words) == len(others) and sum(a != b for a, b in zip(words, others, strict=True)) == 1


def unread(home: Resolver, old: Model, new: Model) -> Iterator[Statement]:
    """What a file sets of Megatron's modules and configurations, and the newer release has not: it has no effect."""
    for site in home.model.sites:
        target = site.target
        if not isinstance(target, ast.Attribute) or isinstance(site.statement, ast.Delete):
            continue
        at = home.at(site)
        base = at.expr(target.value)
        if base is None or not _has_state(base, target.attr, old):
            continue
        name = f"{base.name}.{target.attr}"
        if known.holds(old, name) and not known.holds(new, name) and not known.lacking(new, name):
            if known.holds(new, base.name) and reached.on(new, at, ()):
                text = f"`{short(name)}` does not exist {absent(name, new)}: Megatron does not read what is set here"
                yield Statement(CHANGES, text, "", home.model.path, site.node.lineno, caller=name)


def _has_state(base: Ref, name: str, model: Model) -> bool:
    """A module with such a name of its state, or a configuration with such a field."""
    if base.kind == "module":
        return api.is_state(base.name, name)
    is_config = base.kind == "instance" and base.is_core and base.sure and base.name.endswith("Config")
    taken = model.called_with(base.name) if is_config and base.node is None else None
    return taken is not None and name in taken.names


def _is_made(node: ast.expr, home: Resolver, old: Model, depth: int = 0) -> bool:
    """`get_args()` or `parse_args()` of Megatron's, a variable that is set to that alone, or a parameter that is it."""
    value = only_value(node, home) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.Name) and value is None:
        return depth < _DEEPEST and _is_given(node, home, old, depth)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute | ast.Name):
        return False
    meant = written(value.func, home)
    return meant is not None and all(name.startswith(TRAINING) and name.endswith(_MAKERS) for name in meant.names)


def _is_given(node: ast.Name, home: Resolver, old: Model, depth: int) -> bool:
    """A parameter that its function hands on as Megatron's arguments, or that calls in its file pass as those."""
    function = next((scope for scope in home.model.at(node.lineno)[0].chain() if node.id in scope.bindings), None)
    if function is None or not isinstance(function.node, FunctionNode) or function.parent is None:
        return False
    if [binding.kind for binding in function.bindings[node.id]] != ["param"]:
        return False
    inside = (call for call in home.once(_calls, function.node) if node.id in map(_name, call.args))
    if any(_takes_arguments(call, node.id, home, old) for call in inside):
        return True
    is_method = function.parent.kind == "class"
    calls = (call for call, _ in home.calls_of(function.node.name))
    passed = (argument(call, function.node, node.id, is_method) for call in calls)
    return any(value is not None and _is_made(value, home, old, depth + 1) for value in passed)


def _calls(function: ast.AST) -> list[ast.Call]:
    return [node for node in walk(function) if isinstance(node, ast.Call)]


def _name(node: ast.expr) -> str:
    return getattr(node, "id", "")


def _takes_arguments(call: ast.Call, name: str, home: Resolver, old: Model) -> bool:
    """Whether a call hands a name to a function of Megatron's that takes its arguments: `validate_args(args)`."""
    meant = written(call.func, home) if isinstance(call.func, ast.Attribute | ast.Name) else None
    taken = old.called_with(meant.names[0]) if meant is not None and meant.names[0].startswith(TRAINING) else None
    index = [_name(argument) for argument in call.args].index(name)
    return taken is not None and taken.positional[index : index + 1] == ("args",)


def asked_for(node: ast.Call) -> Iterator[str]:
    """The name in `hasattr(args, "name")`: who asks for it once knows that it may not be there."""
    if isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
        yield from (one.value for one in node.args[1:2] if isinstance(one, ast.Constant) and isinstance(one.value, str))
