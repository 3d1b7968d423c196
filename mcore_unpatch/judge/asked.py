"""What a release raises where a demand is made of it: a name that is gone, a call that no longer fits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.demands import IMPORT, INSTALL, Demand, is_enum
from mcore_unpatch.judge.instead import absent, advice, instead, leaf, made_by, nowhere, nth, short, unfit
from mcore_unpatch.judge.meaning import class_around, is_super, written
from mcore_unpatch.judge.originals import is_nothing
from mcore_unpatch.judge.statement import CHANGES, RAISES, Statement
from mcore_unpatch.judge.supplied import is_supplied
from mcore_unpatch.library.fact import Call, Parameters
from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.library.usage import form
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, is_former, within
from mcore_unpatch.scanner.conditions.holding import imported
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import path_text

_WHEN = {IMPORT: "when the file is imported", INSTALL: "when the patch is installed"}


def raised(demand: Demand, model: Model, old: Model | None = None) -> Iterator[Statement]:
    """What a release raises where a demand is made of it; an older one tells where a name was."""
    demand = demand.on(model)
    yield from missing(demand, model, old)
    yield from misused(demand, model, old)


def missing(demand: Demand, model: Model, old: Model | None = None) -> Iterator[Statement]:
    """A name that the release does not have."""
    name = demand.name
    if demand.by_name or known.holds(model, name):
        return
    tried = [block.owner for block in demand.at.block.outwards() if block.kind == "except"]
    first = (module for owner in tried for statement in getattr(owner, "body", ()) for module in imported(statement))
    if any(known.lacking(model, needed) for needed in (name, *first)):
        return  # a clone of Megatron-LM has it, or what it stands in for, and only the wheel does not
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
    told = _fitting(advice(name, now, when), now, demand, model, old) if not _is_compared(demand) else ""
    yield raising(demand, kind, said, model, told or made_by(name, model, old))


def forgiven(demand: Demand, model: Model) -> Iterator[Statement]:
    """An import that fails on a release and is caught, where nothing takes the place of its name: other code runs."""
    tried = demand.at.block.owner if demand.module else None
    if not isinstance(tried, ast.Try) or known.holds(model, demand.name) or known.lacking(model, demand.name):
        return
    nodes = [node for handler in tried.handlers for node in ast.walk(handler)]
    empty = {id(node.targets[0]) for node in nodes if isinstance(node, ast.Assign) and is_nothing(node.value)}
    stored = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    home = demand.at.home
    tested = home.once(_tested, home.model.tree)  # who never asks for None takes it for the real one
    bound = {node.id for node in stored if id(node) not in empty or node.id in tested}
    names = {alias.asname or alias.name for alias in getattr(demand.node, "names", ())}
    replaced = bound & names or any(_may_succeed(node, model) for node in nodes)
    caught = not demand.runs_on(model, "ImportError") and reached.on(model, demand.at, demand.tests)
    asked = (alias.name for alias in getattr(demand.node, "names", ()))
    lost = [name for name in asked if not known.holds(model, f"{demand.module}.{name}")]
    if caught and not replaced and leaf(demand.name) in lost[:1]:  # one statement fails once
        when, more = absent(demand.name, model), f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        does, is_ = ("do", "are") if more else ("does", "is")
        gone = f"{does} not exist {when}" if when else f"{is_} not in megatron-core {model.label}"
        now = instead(demand.name, model)
        hint = _fitting(advice(demand.name, now, when), now, demand, model, None)
        text = f"`{short(demand.name)}`{more} {gone}: the `try` on line {tried.lineno} hides that, and"
        text += " what needs it does not run, or raises later"
        yield Statement(CHANGES, text, "", demand.path, demand.line, demand.when, instead=hint)


def _may_succeed(node: ast.AST, model: Model) -> bool:
    """Whether what a handler imports in place of what failed may be there."""
    match node:
        case ast.ImportFrom(module=str(module), names=names, level=0):
            asked = [f"{module}.{alias.name}" for alias in names]
        case ast.Import(names=names):
            asked = [alias.name for alias in names]
        case _:
            return isinstance(node, ast.ImportFrom)
    absent_there = (within(name) and not known.holds(model, name) and not known.lacking(model, name) for name in asked)
    return not any(map(is_former, asked)) and not any(absent_there)


def _is_compared(demand: Demand) -> bool:
    """`kind == Kind.gone`: what is much alike would turn the condition over."""
    home = demand.at.home
    return is_enum(demand.name.rpartition(".")[0]) and id(demand.node) in home.once(_compared, home.model.tree)


def _compared(tree: ast.Module) -> set[int]:
    """What the comparisons of a file read, by identity."""
    return {id(part) for node in walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}


def _tested(tree: ast.Module) -> set[str]:
    """The names that conditions of a file ask about."""
    tests = (node if isinstance(node, ast.BoolOp | ast.Compare) else getattr(node, "test", None) for node in walk(tree))
    return {
        node.id for test in tests if test is not None for node in ast.walk(test) if isinstance(node, ast.Name)
    }  # fmt: skip


def raising(demand: Demand, exception: str, text: str, model: Model, advised: str = "") -> Statement:
    """That a demand raises on a release, and when."""
    function = getattr(demand.at.scope.function and demand.at.scope.function.node, "name", "")
    trigger = _WHEN.get(demand.when) or (f"when `{function}` is called" if function else "when it is called")
    if demand.when == IMPORT and _is_in_main(demand):
        trigger = "when the file is run"
    trigger += reached.only_where(model, demand.at, demand.tests)
    handler = reached.handler_of(demand.at.block, "ImportError" if demand.module else exception)
    if isinstance(handler, ast.ExceptHandler) and (word := _raised_by(handler)):
        text = f"{text}; the `except` on line {handler.lineno} expects that, and raises `{word}`"
    return Statement(
        RAISES, text, exception, demand.path, demand.line, demand.when, function, trigger=trigger, instead=advised
    )


def _raised_by(handler: ast.ExceptHandler) -> str:
    """The exception that a handler raises of its own at its end; `raise error` hands on, or what it is is not known."""
    last = handler.body[-1]
    made = last.exc if isinstance(last, ast.Raise) else None
    word = path_text(made.func if isinstance(made, ast.Call) else made) or "" if made is not None else ""
    return word if leaf(word).lstrip("_")[:1].isupper() else ""


def _is_in_main(demand: Demand) -> bool:
    """Whether it stands under `if __name__ == "__main__":`, or in a function of a file that has such a part."""
    ifs = (node for node in demand.at.home.model.tree.body if isinstance(node, ast.If))
    called, mains = demand.at.scope.function is not None, (one for one in ifs if "__name__" in ast.unparse(one.test))
    return any(called or node.lineno <= demand.line <= (node.end_lineno or 0) for node in mains)


def misused(demand: Demand, model: Model, old: Model | None = None) -> Iterator[Statement]:
    """A call that the release does not take, or whose result has another number of values.

    An older one tells what values by position are meant for.
    """
    call, found = demand.call, model.find(demand.name)
    if call is None or found is None:
        return
    taken, then = model.called_with(demand.name), old.called_with(demand.on(old).name) if old is not None else None
    if demand.through_class and takes_no_object(found, model):
        taken, then = found.fact.parameters, None
    call = seen_by(found, call, model, demand)
    wrong = _misfit(taken, call, then) if taken is not None and taken.misfit(call) else ""
    if wrong and not demand.through_class and _is_taken_below(demand.name, call, model):
        wrong = ""
    called = leaf(demand.name) if not leaf(demand.name).startswith("__") else short(demand.name)
    if wrong and demand.runs_on(model, "TypeError"):
        text = f"the call of `{called}` {unfit(wrong, f'megatron-core {model.label}')}"
        index = then.shifted(taken, call) if taken is not None and then is not None and "not pass" not in text else None
        if taken is not None and index is not None:
            text += f"; its {nth(index)} value is `{taken.positional[index]}` there"
        yield raising(demand, "TypeError", text, model)
    gives = found.fact.trait("gives")
    if call.unpacked and gives and int(gives) != call.unpacked and demand.runs_on(model, "ValueError"):
        text = f"unpacks {call.unpacked} values from `{called}`, which gives {gives} on megatron-core {model.label}"
        yield raising(demand, "ValueError", text, model)


def is_replaced(demand: Demand, model: Model, shapes: Mapping[str, str], own: str = "") -> bool:
    """Whether the repository itself replaces what a call reaches, so that its own function tells what fits.

    shapes: of its patches by target, of which `own` asks. A name that was imported or kept before is what it was.
    """
    found = model.find(demand.name)
    names = [demand.name, *((found.name, f"{found.name}.__init__") if found is not None else ())]
    built = model.find(names[-1])
    owner, _, method = demand.name.rpartition(".")
    holder = model.find(owner)  # a module under another name, or a class, whose object may be of a subclass
    is_held = holder is not None and (holder.fact.kind == "module" or not demand.through_class)
    held = [holder.name, *model.derived.get(holder.name, ())] if holder is not None and is_held else []
    below = [f"{name}.{method}" for name in held]
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
    if brought := _brought(found, call, model, demand):
        call = replace(call, keywords=tuple(name for name in call.keywords if name not in brought))
    owner = model.find(found.name.rpartition(".")[0])
    of_class = owner is not None and owner.fact.kind == "class"
    if not demand.through_class or not of_class or found.fact.trait("static") is not None:
        return call
    if found.fact.kind != "function" or found.fact.trait("class") is not None or not call.positions:
        return call
    if takes_no_object(found, model):
        return call
    return replace(call, positions=call.positions - 1)


def _brought(found: Known, call: Call, model: Model, demand: Demand) -> set[str]:
    """Keywords that a release does not take, and a patch file of the repository adds."""
    by_module = demand.at.home.project.brought
    taken = model.called_with(found.name) if by_module and call.keywords else None
    if taken is None:
        return set()
    homes = (found.name, *model.lineage(found.name))
    names = (names for module, names in by_module.items() if any(home.startswith(f"{module}.") for home in homes))
    return {name for name in call.keywords if name not in taken.names}.intersection(set().union(*names))


def takes_no_object(found: Known, model: Model) -> bool:
    """A plain function in a class that is called through it: its first parameter is not `self`."""
    fact, owner = found.fact, model.facts.get(found.name.rpartition(".")[0])
    named = fact.kind == "function" and not any(fact.trait(trait) is not None for trait in ("static", "class", "by"))
    of_class = named and owner is not None and owner.kind == "class"
    return of_class and fact.parameters.positional[:1] not in ((), ("self",), ("cls",))


def _misfit(taken: Parameters, call: Call, then: Parameters | None) -> str:
    """Why a call does not fit: by what its values were meant for, where another release took them."""
    meant = taken.misfit(then.meant(taken, call)) if then is not None and not then.misfit(call) else ""
    return meant or taken.misfit(call)


def _fitting(advised: str, now: str | None, demand: Demand, model: Model, old: Model | None) -> str:
    """What to write in place of a name, and which call does not fit there as it is: its own, or one of the file."""
    found, taken = (model.find(now), model.called_with(now)) if now is not None else (None, None)
    if found is None or taken is None:
        return advised
    home, then = demand.at.home, old.called_with(demand.name) if old is not None else None
    calls = [(demand.call, "")] if demand.call is not None else []
    if demand.module:
        calls = home.kept(_calls_of_imports, lambda: _calls_of_imports(home)).get(demand.name, [])
        if not calls and then is not None and (taken.misfit(then.least) or then.shifted(taken, then.least) is not None):
            return f"{advised}, which takes other arguments"
    for call, where in calls:
        call = seen_by(found, call, model, demand)
        index = then.shifted(taken, call) if then is not None else None
        if wrong := _misfit(taken, call, then):
            return f"{advised}, but the call{where} {unfit(wrong, 'that')}"
        if index is not None:
            return f"{advised}, where the {nth(index)} value of the call{where} is `{taken.positional[index]}`"
    return advised


def _calls_of_imports(home: Resolver) -> dict[str, list[tuple[Call, str]]]:
    """The calls in a file of what it imports, by that name; of a class what its subclasses pass to its constructor."""
    calls: dict[str, list[tuple[Call, str]]] = {}
    for node in (node for node in walk(home.model.tree) if isinstance(node, ast.Call)):
        function: ast.expr | None = node.func
        if isinstance(function, ast.Attribute) and function.attr == "__init__" and is_super(function.value):
            owner = class_around(function, home)
            function = owner.bases[0] if owner is not None and owner.bases else None
        meant = written(function, home) if isinstance(function, ast.Name | ast.Attribute) else None
        for name in meant.names if meant is not None else ():
            calls.setdefault(name, []).append((form(node), f" on line {node.lineno}"))
    return calls
