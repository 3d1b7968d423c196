"""What the step between two releases changes for a patch without an error."""

# ruff: noqa: D102  what each method answers stands at `judge.Judge`

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.code.syntax import last_name, text_of
from mcore_unpatch.code.worth import MISSING, truth
from mcore_unpatch.effects.asks import Ask
from mcore_unpatch.effects.copies import body_changes, class_asked
from mcore_unpatch.effects.raising import Raising, seen_by
from mcore_unpatch.effects.records import Cause, Effect, Outcome, When, place_of
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.detailed import Detailed, Use
from mcore_unpatch.library.signatures import Call, Signature
from mcore_unpatch.patches.records import Spelling

_GIVEN = re.compile(r"(self )?(run_|forward_)?(function|func|fn)\b.* \*")  # `checkpoint(function, ..., *args)`


class Judging(Protocol):
    """What `judge.Judge` answers here."""

    guards: Guards

    def raising(self, release: Detailed) -> Raising: ...
    def asked(self, case: Replaced) -> list[Ask]: ...
    def is_ours(self, case: Replaced, ask: Ask, raising: Raising) -> bool: ...


def changes(judge: Judging, case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """All of it for one patch."""
    raising = judge.raising(new)
    yield from _unknown_or_new(case, old, new)
    yield from _dropped(case, old, new)
    for ask in judge.asked(case):
        if ask.when == When.CALL and not judge.is_ours(case, ask, raising):
            yield from of_ask(ask, old, raising)
    yield from _taken_apart(case, old, new)
    yield from _callers(case, old, new)
    yield from class_asked(case, old, new)
    yield from _turned(judge, case, old, new)
    then, now = ({use.call for use in one.calls(case.target)} for one in (old, new))
    yield from body_changes(case, old, new, bool(then) and then == now)


def of_ask(ask: Ask, old: Detailed, raising: Raising) -> Iterator[Effect]:
    """What a step changes for one use: meanings, defaults, values, counts."""
    new = raising.release
    if ask.call is not None:
        taken = _taken(ask, old, new)
        if taken is not None:
            yield from _moved_values(ask, taken, raising)
        yield from _unpacked(ask, old, raising)
    else:
        then, now = old.entry(ask.name), new.entry(ask.name)
        if then is not None and now is not None and then.letter == now.letter == "v":
            was, is_now = old.define(ask.name), new.define(ask.name)
            name = ask.name.rpartition(".")[2]
            fallback = now.trait("made") is None and name[:1].isupper() and not name.isupper()
            if was and is_now and was.digest != is_now.digest and not fallback and raising.runs(ask, "AttributeError"):
                yield Effect(Outcome.CONSTANT_CHANGED, (new.label,), Cause(ask.name), ask.place)


def _taken(ask: Ask, old: Detailed, new: Detailed) -> tuple[Signature, Signature, Call] | None:
    """What a call takes on both releases, and the call; nothing where one of them is not evident."""
    former, found = old.define(ask.on(old)), new.define(ask.on(new))
    then, now = old.taken(ask.on(old)), new.taken(ask.on(new))
    if ask.call is None or former is None or found is None or then is None or now is None:
        return None
    is_static = [one.entry.trait("static") is not None for one in (former, found)]
    if ask.through_class and is_static[0] is not is_static[1]:
        return former.signature, found.signature, ask.call
    return then, now, seen_by(found, ask.call, new, ask)


def _moved_values(ask: Ask, taken: tuple[Signature, Signature, Call], raising: Raising) -> Iterator[Effect]:
    """Values that are passed by position and mean another parameter now; other defaults of what is not passed."""
    then, now, call = taken
    label = raising.release.label
    if now.misfit(call) is not None:
        return
    index = then.shifted(now, call)
    if index is not None and raising.runs(ask, "TypeError"):
        words = (str(index), then.positional[index], now.positional[index])
        yield Effect(Outcome.VALUE_MOVED, (label,), Cause(ask.name, "", words), ask.place)
    if call.star or call.double_star:
        return
    passed = {*now.positional[: call.positions], *call.keywords}
    was = dict(then.defaults)
    is_class = ask.name.rpartition(".")[2][:1].isupper()
    for name, value in now.defaults:
        before = was.get(name, "")
        if name in passed or not before or not value or _is_same(before, value):
            continue
        if is_class and (before, value) == ("None", "False"):
            continue  # a switch that nobody set is off
        if raising.runs(ask, "TypeError"):
            yield Effect(Outcome.DEFAULT_CHANGED, (label,), Cause(ask.name, "", (name, before, value)), ask.place)
            return


def _is_same(was: str, now: str) -> bool:
    if was == now:
        return True
    try:
        values = [ast.literal_eval(text) for text in (was, now)]
    except (ValueError, SyntaxError):
        return False
    return all(type(value) in (int, float) for value in values) and values[0] == values[1]


def _unpacked(ask: Ask, old: Detailed, raising: Raising) -> Iterator[Effect]:
    """Values unpacked from a function that changed, where it is not evident how many it gives now."""
    new, count = raising.release, ask.call.unpacked if ask.call is not None else 0
    then, now = old.define(ask.on(old)), new.define(ask.on(new))
    if not count or then is None or now is None or now.gives or not raising.runs(ask, "ValueError"):
        return
    was, wanted = _unpacked_by(then.name, old), _unpacked_by(now.name, new)
    if was == {count} and len(wanted) == 1 and count not in wanted:
        words = (str(count), *map(str, wanted))
        yield Effect(Outcome.UNPACKED, (new.label,), Cause(ask.name, "", words), ask.place, "ValueError")
    elif not _GIVEN.match(now.entry.detail) and then.digest != now.digest:
        yield Effect(Outcome.COUNT_UNKNOWN, (new.label,), Cause(ask.name, "", (str(count),)), ask.place)


def _unpacked_by(name: str, release: Detailed) -> set[int]:
    """How many values the library itself unpacks from a function."""
    return {use.call.unpacked for use in release.calls(name) if use.call and use.sure and use.call.unpacked}


# -- the patch itself ------------------------------------------------------------------------------------------------


def _unknown_or_new(case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """What the two cannot be compared on, as one does not hold it at all; a name that the older one lacks."""
    cause, here = Cause(case.target), place_of(case.patch.place, case.patch.path)
    had, has = (release.has(release.name_of(case.target)) for release in (old, new))
    is_nowhere = not any(release.has(case.owner) for release in (old, new))
    if had is None or has is None or (is_nowhere and case.names.library.within(case.owner)):
        yield Effect(Outcome.UNREAD, (new.label,), cause, here)
    elif has and not had and new.define(case.target) is not None and old.has(case.owner):
        yield Effect(Outcome.NEW, (new.label,), cause, here)


def _dropped(case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """Keywords that the newer release passes and the older one did not: swallowed by `**kwargs`."""
    if case.answer is not None and old.define(case.target) is not None:
        now = [use for use in new.calls(case.target) if not _holds_its_own(use, case, new)]
        yield from case.answer.dropped(old.calls(case.target), now, new.label)


def _holds_its_own(use: Use, case: Replaced, release: Detailed) -> bool:
    """Whether a caller imported the function by value: a patch of the module that defines it does not reach that."""
    if case.is_of_class:
        return False
    module = use.place
    while module and not ((entry := release.entry(module)) is not None and entry.letter == "m"):
        module = module.rpartition(".")[0]
    bound = release.entry(f"{module}.{case.attribute}")
    return module != case.owner and bound is not None and bound.letter == "i"


def _taken_apart(case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """What the original returns, indexed or handed on one by one, where it may have another number of values now."""
    then, now = old.define(case.target), new.define(case.target)
    if then is None or now is None or then.digest == now.digest or case.function is None:
        return
    if then.gives == now.gives and now.gives:
        return
    results = {id(call) for call in case.originals.calls}
    nodes = list(ast.walk(case.function)) if results else []
    listed = {id(node) for node in nodes if _is_list_of(node, results)}
    held = {
        target.id: id(node.value) in listed
        for node in nodes
        if isinstance(node, ast.Assign) and id(node.value) in results | listed
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if not isinstance(node, (ast.Subscript, ast.Starred)):
            continue
        if isinstance(node, ast.Subscript) and text_of(node.slice) is not None:
            continue  # of a dict, of whatever size
        as_list = held.get(node.value.id) if isinstance(node.value, ast.Name) else None
        first = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0
        if id(node.value) in results or as_list is False or (as_list and not first):
            cause = Cause(case.target, "", (str(now.gives),) if now.gives else ())
            yield Effect(Outcome.COUNT_UNKNOWN, (new.label,), cause, place_of(node, scope_of(node).module.path))
            return


def _is_list_of(node: ast.AST, results: set[int]) -> bool:
    """`list(original(...))`: any number of values goes through that."""
    made = isinstance(node, ast.Call) and last_name(node.func) in ("list", "tuple")
    return made and any(id(part) in results for part in node.args)  # type: ignore[attr-defined]


def _callers(case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """A name that the newer release has and no longer calls, or that a new function of its module calls too."""
    target = case.target
    had, found = old.entry(target), new.define(target)
    if case.adds or found is None or had is None or case.attribute.startswith("__"):
        return
    has = new.entry(target)
    letter = has.letter if has is not None else "i"
    then, now = old.calls(target), new.calls(target)
    owner = new.entry(case.owner)
    of_module = owner is None or owner.letter == "m"
    by: str | None = None
    if had.letter in "fc" and letter == "i" and of_module:
        by = found.name
    elif had.letter == "f" and has is not None and (other := has.trait("alias")):
        by = other
    elif (letter == had.letter == "i" and old.uses(target) and not new.uses(target)) or (
        case.attribute.startswith("_") and then and not now and not new.uses(target)
    ):
        by = ""
    elif case.patch.spelling == Spelling.MODULE_ATTRIBUTE and letter == "f":
        fresh = [use.place for use in now if use.place.startswith(f"{case.owner}.") and old.define(use.place) is None]
        by = fresh[0] if fresh else None
    if by is not None:
        here = place_of(case.patch.place, case.patch.path)
        yield Effect(Outcome.CALLED_ELSEWHERE, (new.label,), Cause(target, by), here)


def _turned(judge: Judging, case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """Branches that the older release did not take, of a replacement that stands for itself."""
    for function in case.functions if not case.reaches_original else ():
        for node in _tests(function):
            came_out = [_truth(judge, node, release) for release in (old, new)]
            if None not in came_out and came_out[0] is not came_out[1]:
                place = place_of(node.test, scope_of(function).module.path)
                words = (str(came_out[1]),)
                yield Effect(Outcome.BRANCH_TURNED, (new.label,), Cause(case.target, "", words), place)


def _tests(function: Any) -> Iterable[Any]:
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp)) and not isinstance(function, ast.Lambda):
            # A test for a parameter only passes what is taken.
            if not any(isinstance(part, (ast.In, ast.NotIn)) for part in ast.walk(node.test)):
                yield node


def _truth(judge: Judging, node: Any, release: Detailed) -> bool | None:
    if judge.raising(release).reaches(node) is False:
        return None
    value = Reached(judge.guards, release).value(node.test)
    return None if value is MISSING else truth(value)
