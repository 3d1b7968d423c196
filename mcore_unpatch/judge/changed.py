"""What the step between two releases changes for one demand without an error: meanings, defaults, values, counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from mcore_unpatch.judge.asked import raising, seen_by, takes_no_object
from mcore_unpatch.judge.demands import Demand
from mcore_unpatch.judge.dropped import key_asked
from mcore_unpatch.judge.instead import leaf, nth, short
from mcore_unpatch.judge.meaning import written
from mcore_unpatch.judge.reached import keys_of
from mcore_unpatch.judge.statement import CHANGES, IDLE, SPEED, Statement
from mcore_unpatch.library.fact import Call, Parameters, quoted
from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.megatron.layout import SPEED_ONLY
from mcore_unpatch.scanner.sources.nodes import walk

_GIVEN = re.compile(r"(self )?(run_|forward_)?(function|func|fn)\b.* \*")  # `checkpoint(function, ..., *args)`
_MOST_FIELDS = 4  # that are named of a constructor call


def changed(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """What a step changes without an error."""
    for ask in (_positions, _defaults, _values, _keys, _unpacked):
        yield from ask(demand, old, new)


def _taken(demand: Demand, old: Model, new: Model) -> tuple[Parameters, Parameters, Call] | None:
    """What a call takes on both releases, and the call; None where one of them is not evident."""
    before, now = demand.on(old), demand.on(new)
    then_taken, now_taken, found = old.called_with(before.name), new.called_with(now.name), new.find(now.name)
    if demand.call is None or then_taken is None or now_taken is None or found is None:
        return None
    former = old.find(before.name)
    plain = takes_no_object(found, new) or (former and former.fact.trait("static")) != found.fact.trait("static")
    if demand.through_class and former is not None and plain:
        # A plain function of the class was called through it all along: its first parameter is no object.
        return former.fact.parameters, found.fact.parameters, demand.call
    return then_taken, now_taken, seen_by(found, demand.call, new, demand)


def _changes(demand: Demand, text: str, kind: str = CHANGES) -> Statement:
    return Statement(kind, text, "", demand.path, demand.line, demand.when)


def _positions(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Values that are passed by position and mean another parameter now."""
    if (taken := _taken(demand, old, new)) is None:
        return
    then, now, call = taken
    index = then.shifted(now, call, by_name=True) if not now.misfit(call) else None
    if index is not None and not _is_relayed(demand) and demand.runs_on(new, "TypeError"):
        was, is_now = then.positional[index], now.positional[index]
        gone = "" if was in now.names else ", which is gone"
        text = f"the {nth(index)} value passed to `{leaf(demand.name)}` is `{is_now}` on megatron-core {new.label}"
        what = "other results, or an error" if index == then.shifted(now, call) else "a new name, or something else"
        yield _changes(demand, f"{text}, and was `{was}`{gone}: {what}")


def _is_relayed(demand: Demand) -> bool:
    """`original(self, first, *args, **kwargs)` in a wrapper of just these parameters: it gives on what it is given."""
    node, around = demand.node, demand.at.scope.function
    spec = getattr(around.node, "args", None) if around is not None else None
    if spec is None or not (spec.vararg or spec.kwarg) or spec.defaults or not isinstance(node, ast.Call):
        return False  # a default of its own may be given on where nobody passed anything
    # What is imported is called by others too.
    if not isinstance(node.func, ast.Name | ast.Attribute) or written(node.func, demand.at.home) is not None:
        return False
    every = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    own = [parameter.arg for parameter in every if parameter is not None]
    values = [getattr(getattr(argument, "value", argument), "id", "") for argument in (*node.args, *node.keywords)]
    return values == own


def _defaults(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Parameters, or fields of a dataclass, that a call leaves out, and that have another default now."""
    if (taken := _taken(demand, old, new)) is None or taken[2].star or taken[2].double_star:
        return
    then, now, call = taken
    passed = {*now.positional[: call.positions], *call.keywords}
    is_class = leaf(demand.name)[:1].isupper()
    # Of a function None may say that a new name has the old default.
    renamed = {now.defaults[name] for name in now.defaults if name not in then.names and not is_class}
    other = {
        name: f"{value} by default on megatron-core {new.label}, and was {was}"
        for name, value in now.defaults.items()
        if name not in passed and not _is_same(was := then.defaults.get(name, ""), value)
        if value != "None" or was not in renamed
        if not (is_class and (was, value) == ("None", "False"))  # a switch that nobody set is off
    }
    fresh = ((name, value) for name, value in now.defaults.items() if name not in {*passed, *then.names})
    for name, value in fresh:
        if value.startswith("'") and (was := _given_before(old, new).get(name, value)) != value:
            other[name] = f"new on megatron-core {new.label}: {value} by default, and {was} may be what was done before"
    for name in (*_set_beside(demand), *_shut_off(demand, now, new)) if other else ():
        other.pop(name, None)
    for kind in (CHANGES, SPEED, IDLE) if other and demand.runs_on(new, "TypeError") else ():
        names = [name for name in other if _kind(f"{demand.on(new).name}.{name}", new) == kind]
        if names:
            more = "default" if len(names) == 2 else "defaults"
            also = f"; the {more} of {quoted(names[1:], _MOST_FIELDS)} changed too" if names[1:] else ""
            also += _readers(f"{demand.on(new).name}.{names[0]}", new) if len(names) == 1 or kind == IDLE else ""
            text = f"`{names[0]}` of `{leaf(demand.name)}`, which is not passed, is {other[names[0]]}{also}"
            yield _changes(demand, text, kind)


@cache
def _given_before(old: Model, new: Model) -> dict[str, str]:
    """Choices by name that are new to functions, and what the library itself passes in place of their default.

    A flag or a number tells less: what is new may be off, or the same, by default.
    """
    given = {}
    for name, fact in new.facts.items():
        for key, _, value in (word.partition("=") for word in fact.every("given")):
            before, default = old.facts.get(name), fact.parameters.defaults.get(key, "")
            is_new = before is not None and before.kind == "function" and key not in before.parameters.names
            if is_new and value.startswith("'") and default.startswith("'"):
                given[key] = value
    return given


def _is_same(was: str, now: str) -> bool:
    """Whether two defaults, as written, are one value, as `0` and `0.0` are; what is no constant may be."""
    if not was or not now or was == now:
        return True
    values = [ast.literal_eval(text) for text in (was, now)]
    return all(type(value) in (int, float) for value in values) and values[0] == values[1]


def _kind(parameter: str, model: Model) -> str:
    """What another default of a parameter or field changes: nothing where nobody reads it, or what its name tells."""
    found = model.find(parameter)
    if found is not None and found.fact.trait("unread") is not None:
        return IDLE
    return SPEED if SPEED_ONLY.search(leaf(parameter)) else CHANGES


def _readers(parameter: str, model: Model) -> str:
    """Who alone reads a field, for those who know that they do not use it, as the end of a sentence."""
    found = model.find(parameter)
    if found is not None and found.fact.trait("unread") is not None:
        return "; Megatron itself does not read it by name"
    names = [leaf(name) for name in (found.fact.trait("read") or "").split("|") if name] if found is not None else []
    return f"; only {quoted(names)} {'reads' if len(names) == 1 else 'read'} it by name" if names else ""


def _set_beside(demand: Demand) -> set[str]:
    """The attributes that the function around a call sets, on whatever object: what was not passed may be set then."""
    nodes = walk((demand.at.scope.function or demand.at.scope).node)
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def _shut_off(demand: Demand, taken: Parameters, model: Model) -> Iterator[str]:
    """Parameters that are read only where a switch is on, which the call leaves or turns off."""
    known = model.function(demand.on(model).name)
    for switch, _, name in (word.partition("=") for word in (known.fact.every("behind") if known is not None else ())):
        values = [word.value for word in getattr(demand.node, "keywords", ()) if word.arg == switch]
        if demand.call is None or switch in taken.positional[: demand.call.positions]:
            continue
        off = taken.defaults.get(switch) in ("False", "None") if not values else None
        if off or (values and isinstance(values[0], ast.Constant) and not values[0].value):
            yield name


def _values(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Constants that are read, and have another value now; of a field of an object another default."""
    then, now = old.facts.get(demand.name), new.facts.get(demand.name)
    if demand.call is not None or then is None or now is None or not now.kind == then.kind == "value":
        return
    owner, _, name = demand.name.rpartition(".")
    fields = [taken.defaults.get(name, "") for model in (old, new) if (taken := model.called_with(owner)) is not None]
    same = then.digest == now.digest or (all(fields) and len(fields) == 2 and _is_same(*fields))
    fallback = not now.every("made") and name[:1].isupper() and not name.isupper()  # for a class that is not there
    if not (same or fallback) and demand.runs_on(new, "AttributeError"):
        what = "value" if demand.through_class or demand.module else "default"
        yield _changes(demand, f"`{name}` has another {what} on megatron-core {new.label}")


def _keys(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Keys that are read of a dict of a class, and that no code of the library writes any more."""
    then, now = (keys_of(demand.name, model) for model in (old, new))
    scope = demand.at.scope.node
    lost = _read_keys(scope, leaf(demand.name)) & (then - now) if now and scope is not None else set()
    if lost and demand.runs_on(new, "KeyError"):
        name = leaf(demand.name)
        yield _changes(
            demand,
            f"reads {quoted(sorted(lost))} of `{name}`, which no code of megatron-core {new.label} sets; it sets "
            f"{quoted(sorted(now - then) or sorted(now))}",
        )


def _read_keys(scope: ast.AST, attribute: str) -> set[str]:
    """The keys that code asks a dict for, which is an attribute, also by a name that it gives to it."""
    nodes = list(walk(scope))
    named = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and getattr(node.value, "attr", "") == attribute
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def is_it(node: ast.AST) -> bool:
        return getattr(node, "id", "") in named or getattr(node, "attr", "") == attribute

    return {key for node in nodes if isinstance(key := key_asked(node, is_it), str)}


def _unpacked(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Values unpacked from a function that changed, where it is not evident how many it gives now."""
    count = demand.call.unpacked if demand.call is not None else 0
    then, now = old.find(demand.on(old).name), new.find(demand.on(new).name)
    if not count or then is None or now is None or now.fact.trait("gives") is not None:
        return
    was, wanted = _unpacked_by(then, old), _unpacked_by(now, new)
    if set(was) == {count} and len(wanted) == 1 and count not in wanted and demand.runs_on(new, "ValueError"):
        [(gives, caller)] = wanted.items()
        text = f"unpacks {count} values from `{leaf(demand.name)}`, of which `{short(caller)}` of megatron-core"
        yield raising(demand, "ValueError", f"{text} {new.label} unpacks {gives}", new)
    elif _GIVEN.match(now.fact.detail):
        return  # what it gives is what the function gives that it is given
    elif then.fact.digest != now.fact.digest and demand.runs_on(new, "ValueError"):
        yield _changes(
            demand,
            f"unpacks {count} values from `{leaf(demand.name)}`, which changed; how many it gives on megatron-core "
            f"{new.label} is not evident",
        )


def _unpacked_by(found: Known, model: Model) -> dict[int, str]:
    """How many values the library itself unpacks from a function, and who does."""
    calls = [(usage.call.unpacked, usage.place) for usage in model.calls(found.name) if usage.call and usage.sure]
    return {count: place for count, place in calls if count}
