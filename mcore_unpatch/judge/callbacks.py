"""Functions of the repository that are handed to Megatron: does it still call them in a way that they take?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.judge.demands import CALL, Demand
from mcore_unpatch.judge.instead import leaf, unfit
from mcore_unpatch.judge.meaning import class_around
from mcore_unpatch.judge.statement import IDLE, RAISES, Statement
from mcore_unpatch.library.fact import Call, Fact, parameters, without_self
from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.library.syntax import Function, Nodes, given_counts, parameters_of
from mcore_unpatch.megatron.layout import CONFIG

_Callback = tuple[Function | ast.Lambda, bool]  # whether it is a method of an object


def handed(demand: Demand, old: Model, new: Model) -> Iterator[Statement]:
    """Functions among the arguments of a call, which Megatron calls with something else now, or takes more from."""
    before, now = old.function(demand.on(old).name), new.function(demand.on(new).name)
    node = demand.node
    if not isinstance(node, ast.Call) or before is None or now is None or not now.fact.trait("hands"):
        return
    places = (parameters(model.detail_for_callers(known)).positional for model, known in ((old, before), (new, now)))
    given = [(name, value) for was, name, value in zip(*places, node.args, strict=False) if was == name]
    given += [(word.arg or "", word.value) for word in node.keywords]
    who, trigger = f"`{leaf(now.name)}` of megatron-core {new.label}", f"when `{leaf(now.name)}` calls it"
    for name, value in given:
        then, calls = list(_hands(before.fact, name)), dict(_hands(now.fact, name))
        for function, is_method in _functions(value, demand) if then and calls else ():
            said = Statement(RAISES, "", "", demand.path, demand.line, CALL, now.name, trigger=trigger)
            called = f"`{getattr(function, 'name', 'the lambda')}`"
            wrong = _misfits(function, is_method, [form for form, _ in then], list(calls))
            if wrong and demand.runs_on(new, "TypeError"):
                conditions = {calls[call] for call in wrong}
                condition = conditions.pop() if len(conditions) == 1 else ""
                only, why = f", only if `{condition}`" if condition else "", next(iter(wrong.values()))
                is_off = _is_opt_in(condition, old, new) or _is_left_off(condition, demand, now, new)
                kind = IDLE if is_off else RAISES
                yield replace(said, kind=kind, text=f"{who} {unfit(why, called)}{only}", exception="TypeError")
            counts = given_counts(function)
            fitted, wanted = ({form.unpacked for form in forms} for forms in (dict(then), calls))
            if counts and 0 not in counts | wanted and counts <= fitted and not counts & wanted:
                text = f"{who} unpacks {max(wanted)} values from {called}, which gives {max(counts)}"
                yield replace(said, text=text, exception="ValueError")


def _misfits(function: Function | ast.Lambda, is_method: bool, then: list[Call], calls: list[Call]) -> dict[Call, str]:
    """The calls that do not fit, and why: each of them did, or, as some may be for other cases, none does any more."""
    detail = parameters_of(function)
    takes = parameters(without_self(detail) if is_method else detail)
    before, now = ([takes.misfit(call) for call in some] for some in (then, calls))
    wrong = {call: why for call, why in zip(calls, now, strict=True) if why}
    return wrong if not any(before) or (not all(before) and all(now)) else {}


def _is_opt_in(condition: str, old: Model, new: Model) -> bool:
    """Whether a condition asks for a setting that is new and off by default: nobody can have it on yet."""
    setting = re.fullmatch(r"(?:self\.)?(?:config|args)\.(\w+)", condition)
    before, now = old.called_with(CONFIG), new.called_with(CONFIG)
    if setting is None or before is None or now is None:
        return False
    return setting[1] not in before.names and now.defaults.get(setting[1]) in ("False", "None")


def _is_left_off(condition: str, demand: Demand, now: Known, new: Model) -> bool:
    """Whether a condition asks for a flag of the very function, which is off by default and which a call leaves out."""
    taken, call = parameters(new.detail_for_callers(now)), demand.call
    if call is None or call.star or call.double_star or taken.defaults.get(condition) not in ("False", "None"):
        return False
    return condition not in {*call.keywords, *taken.positional[: call.positions]}


def _functions(value: ast.expr, demand: Demand) -> Iterator[_Callback]:
    """The functions that an argument is: by name, a method of `self`, or what a function of the repository makes."""
    if isinstance(value, ast.Lambda):
        yield value, False
        return
    made = isinstance(value, ast.Call)
    named = value.func if isinstance(value, ast.Call) else value
    if not isinstance(named, ast.Name | ast.Attribute):
        return
    ref = demand.at._replace(line=demand.line).expr(named)
    node = ref.node if ref is not None and ref.kind == "local-function" else None
    is_method = ref is not None and ref.bound
    cls = class_around(named, demand.at.home)
    if isinstance(named, ast.Attribute) and getattr(named.value, "id", "") == "self" and cls is not None:
        node = next((item for item in cls.body if isinstance(item, Function) and item.name == named.attr), None)
        is_method = True
    if not isinstance(node, Function) or node.decorator_list:
        return
    if not made:
        yield node, is_method
        return
    results = {one.value.id for one in Nodes([node]).own.of(ast.Return) if isinstance(one.value, ast.Name)}
    inner = Nodes(node.body).of(ast.FunctionDef, ast.AsyncFunctionDef)
    yield from ((function, False) for function in inner if function.name in results and not function.decorator_list)


def _hands(fact: Fact, name: str) -> Iterator[tuple[Call, str]]:
    """What a function calls its parameter with, and on which condition alone."""
    for parameter, _, text in (word.partition("=") for word in fact.every("hands")):
        form, _, condition = text.partition("?")
        if parameter == name:
            words = condition.replace("\xa0", " ")
            yield Call.read(form), words if name not in words.split() else ""  # that it is given at all
