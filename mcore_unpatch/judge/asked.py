"""What a release, or the step between two, does to one demand: a name that is gone, a call that no longer fits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.demands import IMPORT, INSTALL, Demand
from mcore_unpatch.judge.instead import absent, advice, instead, leaf, made_by, nowhere, short, unfit
from mcore_unpatch.judge.statement import CHANGES, IDLE, RAISES, SPEED, Statement
from mcore_unpatch.judge.supplied import is_supplied
from mcore_unpatch.library.fact import Call, Parameters, quoted
from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import SPEED_ONLY
from mcore_unpatch.megatron.versions import RELEASES, within
from mcore_unpatch.scanner.sources.nodes import walk

_WHEN = {IMPORT: "when the file is imported", INSTALL: "when the patch is installed"}
_POSITIONS = ("first", "second", "third", "fourth", "fifth", "sixth")
_GIVEN = re.compile(r"(self )?(run_|forward_)?(function|func|fn)\b.* \*")  # `checkpoint(function, ..., *args)`
_MOST_FIELDS = 4  # that are named of a constructor call


def raised(demand: Demand, model: Model, old: Model | None = None) -> Iterator[Statement]:
    """What a release raises where a demand is made of it; an older one tells where a name was."""
    demand = demand.on(model)
    yield from missing(demand, model, old)
    yield from misused(demand, model)


def changed(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """What a step changes without an error."""
    for ask in (_positions, _defaults, _values, _keys, _unpacked):
        yield from ask(demand, old, new)


def missing(demand: Demand, model: Model, old: Model | None = None) -> Iterator[Statement]:
    """A name that the release does not have."""
    name = demand.name
    if demand.by_name or known.holds(model, name):
        return
    if known.lacking(model, name):
        return  # a clone of Megatron-LM has it, and only the wheel does not
    owner = name.rpartition(".")[0]
    if not demand.module and owner and within(owner) and not known.holds(model, owner):
        return  # its module or class is gone, which is said where that is read
    read = getattr(demand.node, "func", demand.node)
    kind = {ast.Name: "NameError", ast.Subscript: "KeyError"}.get(type(read), "AttributeError")
    exception = kind
    if demand.module:
        exception, kind = "ImportError", "ImportError" if known.holds(model, demand.module) else "ModuleNotFoundError"
    if not demand.runs_on(model, exception) or is_supplied(demand, model):
        return
    when = absent(name, model)
    gone = f"does not exist {when}" if when else f"is not in megatron-core {model.label}"
    oldest = known.model(RELEASES[0])
    every = model.label in RELEASES and not known.lacking(oldest, name)  # release can be asked for it
    said = nowhere(name) if every and not known.ever(name) else f"`{short(name)}` {gone}"
    now = instead(name, model, old)
    told = _fitting(advice(name, now, when), now, demand, model)
    yield _raises(demand, kind, said, told or made_by(name, model, old))


def forgiven(demand: Demand, model: Model) -> Iterator[Statement]:
    """An import that fails on a release and is caught, where nothing takes the place of its name: other code runs."""
    tried = demand.at.block.owner if demand.module else None
    if not isinstance(tried, ast.Try) or known.holds(model, demand.name) or known.lacking(model, demand.name):
        return
    nodes = [node for handler in tried.handlers for node in ast.walk(handler)]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = {alias.asname or alias.name for alias in getattr(demand.node, "names", ())}
    replaced = bound & names or any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
    caught = not demand.runs_on(model, "ImportError") and reached.on(model, demand.at, demand.tests)
    lost = [alias.name for alias in getattr(demand.node, "names", ())]
    lost = [name for name in lost if not known.holds(model, f"{demand.module}.{name}")]
    if caught and not replaced and leaf(demand.name) in lost[:1]:  # one statement fails once
        when, more = absent(demand.name, model), f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        does, is_ = ("do", "are") if more else ("does", "is")
        gone = f"{does} not exist {when}" if when else f"{is_} not in megatron-core {model.label}"
        runs = f"the `try` on line {tried.lineno} catches that, and other code of yours runs"
        hint = advice(demand.name, instead(demand.name, model), when)
        text = f"`{short(demand.name)}`{more} {gone}: {runs}"
        yield Statement(CHANGES, text, "", demand.path, demand.line, demand.when, instead=hint)


def _raises(demand: Demand, exception: str, text: str, advised: str = "") -> Statement:
    function = getattr(demand.at.scope.function and demand.at.scope.function.node, "name", "")
    trigger = _WHEN.get(demand.when) or (f"when `{function}` is called" if function else "when it is called")
    if demand.when == IMPORT and _is_in_main(demand):
        trigger = "when the file is run"
    return Statement(
        RAISES, text, exception, demand.path, demand.line, demand.when, function, trigger=trigger, instead=advised
    )


def _is_in_main(demand: Demand) -> bool:
    """Whether it stands under `if __name__ == "__main__":`."""
    home = demand.at.home
    return any(node.lineno <= demand.line <= (node.end_lineno or 0) for node in home.once(_mains, home.model.tree))


def _mains(tree: ast.Module) -> list[ast.If]:
    tested = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Compare)]
    return [node for node in tested if getattr(node.test.left, "id", "") == "__name__"]  # type: ignore[attr-defined]


def misused(demand: Demand, model: Model) -> Iterator[Statement]:
    """A call that the release does not take, or whose result has another number of values."""
    call, found = demand.call, model.find(demand.name)
    if call is None or found is None:
        return
    taken = model.called_with(demand.name)
    if demand.through_class and _takes_no_object(found, model):
        taken = found.fact.parameters
    call = seen_by(found, call, model, demand)
    wrong = taken.misfit(call) if taken is not None else ""
    if wrong and not demand.through_class and _is_taken_below(demand.name, call, model):
        wrong = ""
    called = leaf(demand.name) if not leaf(demand.name).startswith("__") else short(demand.name)
    if wrong and demand.runs_on(model, "TypeError"):
        yield _raises(demand, "TypeError", f"the call of `{called}` {unfit(wrong, f'megatron-core {model.label}')}")
    gives = found.fact.trait("gives")
    if call.unpacked and gives and int(gives) != call.unpacked and demand.runs_on(model, "ValueError"):
        text = f"unpacks {call.unpacked} values from `{called}`, which gives {gives} on megatron-core {model.label}"
        yield _raises(demand, "ValueError", text)


def is_replaced(demand: Demand, model: Model, shapes: Mapping[str, str], own: str = "") -> bool:
    """Whether the repository itself replaces what a call reaches, so that its own function tells what fits.

    shapes: of its patches by target, of which `own` asks. A name that was imported or kept before is what it was.
    """
    found = model.find(demand.name)
    names = [demand.name, *((found.name, f"{found.name}.__init__") if found is not None else ())]
    built = model.find(names[-1])
    owner, _, method = demand.name.rpartition(".")
    holder = model.find(owner) if not demand.through_class else None  # whose object may be of a subclass
    below = [f"{sub}.{method}" for sub in model.derived.get(holder.name, ())] if holder is not None else []
    every = (*names, *below, built.name if built is not None else "")
    hit = {shapes[name] for name in every if name in shapes and name != own}
    if not hit or _is_kept(demand, names):
        return False
    return not demand.by_name or hit != {"module-attr"}


def _is_kept(demand: Demand, names: list[str]) -> bool:
    """`original(...)`: called by another name than its own, which it got from a class, or outside of functions.

    `real = self.decoder.forward` in a function is what the object has when that runs.
    """
    function = demand.node.func if isinstance(demand.node, ast.Call) else None
    if not isinstance(function, ast.Name) or function.id in map(leaf, names):
        return False
    home = next((scope for scope in demand.at.scope.chain() if function.id in scope.bindings), None)
    return demand.through_class or home is None or home.kind != "function"


def _is_taken_below(name: str, call: Call, model: Model) -> bool:
    """Whether the object may be of a subclass whose own method takes a call."""
    owner, _, method = name.rpartition(".")
    holder = model.find(owner)
    subclasses = model.derived.get(holder.name, ()) if holder is not None else ()
    others = (model.called_with(f"{sub}.{method}") for sub in subclasses if f"{sub}.{method}" in model.facts)
    return method != "__init__" and any(taken is not None and not taken.misfit(call) for taken in others)


def seen_by(found: Known, call: Call, model: Model, demand: Demand) -> Call:
    """A call as the function sees it: of `Class.method(object, ...)` the object does not count.

    A field that a subclass in the repository declares is its own, or has its default there where Megatron's has none.
    """
    if demand.added and (taken := model.called_with(found.name)) is not None:
        passed = [name for name in call.keywords if name not in demand.added]
        given = demand.added.intersection(taken.names).difference(taken.positional[: call.positions])
        most = min(call.positions, len(taken.positional))  # behind them are those of the subclass
        call = replace(call, positions=most, keywords=(*passed, *sorted(given)))
    owner = model.find(found.name.rpartition(".")[0])
    of_class = owner is not None and owner.fact.kind == "class"
    if not demand.through_class or not of_class or found.fact.trait("static") is not None:
        return call
    if found.fact.kind != "function" or found.fact.trait("class") is not None or not call.positions:
        return call
    if _takes_no_object(found, model):
        return call
    return replace(call, positions=call.positions - 1)


def _takes_no_object(found: Known, model: Model) -> bool:
    """A plain function in a class that is called through it: its first parameter is not `self`."""
    fact, owner = found.fact, model.facts.get(found.name.rpartition(".")[0])
    named = fact.kind == "function" and not any(fact.trait(one) is not None for one in ("static", "class", "by"))
    return (
        named
        and owner is not None
        and owner.kind == "class"
        and fact.parameters.positional[:1] not in ((), ("self",), ("cls",))
    )


# --- what changes without an error ----------------------------------------------------------------------------------


def _taken(demand: Demand, old: Model, new: Model) -> tuple[Parameters, Parameters, Call] | None:
    """What a call takes on both releases, and the call; None where one of them is not evident."""
    before, now = demand.on(old), demand.on(new)
    then_taken, now_taken, found = old.called_with(before.name), new.called_with(now.name), new.find(now.name)
    if demand.call is None or then_taken is None or now_taken is None or found is None:
        return None
    former = old.find(before.name)
    plain = _takes_no_object(found, new)
    if (
        demand.through_class
        and former is not None
        and (plain or former.fact.trait("static") != found.fact.trait("static"))
    ):
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
    if now.misfit(call) or then.positional[: call.positions] == now.positional[: call.positions]:
        return
    pairs = list(zip(then.positional, now.positional, strict=False))[: call.positions]
    for index, (was, is_now) in enumerate(pairs):
        renamed = was not in now.names and is_now not in then.names and len(then.names) == len(now.names)
        if was != is_now and not renamed and demand.runs_on(new, "TypeError"):
            gone = "" if was in now.names else ", which is gone"
            nth = _POSITIONS[index] if index < len(_POSITIONS) else f"{index + 1}th"
            yield _changes(
                demand,
                f"the {nth} value passed to `{leaf(demand.name)}` is `{is_now}` on megatron-core {new.label}, and was "
                f"`{was}`{gone}",
            )
            return


def _defaults(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Parameters, or fields of a dataclass, that a call leaves out, and that have another default now."""
    if (taken := _taken(demand, old, new)) is None or taken[2].star or taken[2].double_star:
        return
    then, now, call = taken
    passed = {*now.positional[: call.positions], *call.keywords}
    other = {
        name: f"{value} by default on megatron-core {new.label}, and was {was}"
        for name, value in now.defaults.items()
        if name not in passed and not _is_same(was := then.defaults.get(name, ""), value)
    }
    fresh = ((name, value) for name, value in now.defaults.items() if name not in {*passed, *then.names})
    for name, value in fresh:
        if value.startswith("'") and (was := _given_before(old, new).get(name, value)) != value:
            other[name] = f"new on megatron-core {new.label}: {value} by default, where Megatron itself passes {was}"
    for name in (*_set_beside(demand), *_shut_off(demand, now, new)) if other else ():
        other.pop(name, None)
    for kind in (CHANGES, SPEED, IDLE) if other and demand.runs_on(new, "TypeError") else ():
        names = [name for name in other if _kind(f"{demand.on(new).name}.{name}", new) == kind]
        if names:
            more = "default" if len(names) == 2 else "defaults"
            also = f"; the {more} of {quoted(names[1:], _MOST_FIELDS)} changed too" if names[1:] else ""
            also += "; Megatron itself does not read it by name" if kind == IDLE else ""
            text = f"`{names[0]}` of `{leaf(demand.name)}`, which is not passed, is {other[names[0]]}{also}"
            yield _changes(demand, text, kind)


@cache
def _given_before(old: Model, new: Model) -> dict[str, str]:
    """Choices by name that are new to functions, and what the library itself passes in place of their default.

    A flag or a number tells less: what is new may be off, or the same, by default.
    """
    found = {}
    for name, fact in new.facts.items():
        for key, _, value in (word.partition("=") for word in fact.every("given")):
            before, default = old.facts.get(name), fact.parameters.defaults.get(key, "")
            is_new = before is not None and before.kind == "function" and key not in before.parameters.names
            if is_new and value.startswith("'") and default.startswith("'"):
                found[key] = value
    return found


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
    if not same and demand.runs_on(new, "AttributeError"):
        what = "value" if demand.through_class else "default"
        yield _changes(demand, f"`{name}` has another {what} on megatron-core {new.label}")


def _keys(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Keys that are read of a dict of a class, and that no code of the library writes any more."""
    words = [fact.trait("keys") if (fact := model.facts.get(demand.name)) is not None else None for model in (old, new)]
    then, now = (set(word.split(",")) if word else set() for word in words)
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

    found: list[ast.AST] = []
    for node in nodes:
        match node:
            case ast.Subscript(value=value, slice=key) if is_it(value):
                found.append(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]) if is_it(value):
                found.append(key)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop"), args=[key, *_]) if is_it(value):
                found.append(key)
    return {key.value for key in found if isinstance(key, ast.Constant) and isinstance(key.value, str)}


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
        yield _raises(demand, "ValueError", f"{text} {new.label} unpacks {gives}")
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


def _fitting(advised: str, now: str | None, demand: Demand, model: Model) -> str:
    """What to write in place of a name, and why the call does not fit there as it is."""
    found, taken = (model.find(now), model.called_with(now)) if now is not None else (None, None)
    if found is None or taken is None or demand.call is None:
        return advised
    wrong = taken.misfit(seen_by(found, demand.call, model, demand))
    return f"{advised}, but the call {unfit(wrong, 'that')}" if wrong else advised
