"""On which releases a patch is made: where its place is reached, and the place of the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from mcore_unpatch.code.conditions import Condition, Way
from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.code.syntax import last_name, spelled, walk
from mcore_unpatch.code.values import Kind, Value, texts
from mcore_unpatch.code.worth import Given, both
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.patches.records import Confidence, Patch, Spelling


def alive(guards: Guards, patch: Patch, releases: Sequence[Detailed]) -> list[bool | None]:
    """Whether a patch is made, release by release; where a function makes it, some call of that has to be reached."""
    asked = conditions_of(guards, patch)
    made = [_on(guards, patch, release, asked) for release in releases]
    called = is_called(guards, patch, releases)
    return [False if reached is False else one for one, reached in zip(made, called, strict=True)]


def is_called(guards: Guards, patch: Patch, releases: Sequence[Detailed]) -> list[bool | None]:
    """False for each release that keeps all the calls from the function that makes a patch."""
    calls, known = installing_calls(guards, patch), [one for one in guards.every or releases if not one.is_later]
    if not calls or all(_is_called(guards, calls, release) is False for release in known):
        return [None] * len(releases)  # whatever keeps it from being called is no question of the release
    return [_is_called(guards, calls, release) for release in releases]


def _is_called(guards: Guards, calls: list[ast.Call], release: Detailed) -> bool | None:
    """False where no call is reached on a release; asked once for all the patches that one function makes."""
    key = (calls[0], release.label)
    if key not in guards.called:
        run = Reached(guards, release)
        ways = [both(run.holds(one) for one in conditions_of_call(guards, call)) for call in calls]
        guards.called[key] = False if all(way is False for way in ways) else None
    return guards.called[key]


def installing_calls(guards: Guards, patch: Patch) -> list[ast.Call]:
    """The calls of the function that makes a patch; none where it may be called otherwise too."""
    function = scope_of(patch.place).outermost_function()
    if function is None or function.node.decorator_list:
        return []
    key = function.node
    if key not in guards.installing:
        guards.installing[key] = _calls_of(guards, function.node)
    return guards.installing[key]


def conditions_of_call(guards: Guards, call: ast.Call) -> list[Condition]:
    """The questions on the way to a call."""
    return [one for one in guards.conditions(call) if _is_asked(one)]


def _is_asked(condition: Condition) -> bool:
    """Whether a condition is a question: an import of what a release lacks breaks there, and is another matter."""
    if condition.way == Way.PASSED:
        return not isinstance(condition.node, (ast.Import, ast.ImportFrom))
    return condition.way == Way.TEST


def _calls_of(guards: Guards, function: Any) -> list[ast.Call]:
    asked = any(conditions_of_call(guards, call) for call in guards.names.callers(function))
    return only_calls(guards.names, function) if asked else []


def only_calls(names: Names, function: Any) -> list[ast.Call]:
    """The calls of a function of the repository; none where its name is handed on, or is another's too."""
    calls, name = names.callers(function), function.name
    called = {id(call.func) for call in calls}
    for path in names.index.saying(name) if calls else ():
        module = None if is_test(path) else names.index.module(path)
        for node in walk(module.tree) if module is not None else ():
            if last_name(node) == name and isinstance(getattr(node, "ctx", None), ast.Load) and id(node) not in called:
                return []  # handed on, or another of that name
    return calls


Asked = list[tuple[Condition, Given | None]]


def conditions_of(guards: Guards, patch: Patch) -> Asked:
    """What decides on the way to a patch, and what the names there stand for: where it is written, and where made."""
    write, given = patch.write, _given(guards.names, patch) or None
    place = write.place if write is not None else patch.place
    outer = guards.conditions(patch.place) if place is not patch.place else ()
    return [(one, given) for one in (*guards.conditions(place), *outer)]


def run_on(guards: Guards, patch: Patch, release: Detailed) -> Reached:
    """Who answers for a release, and knows what is patched by what is done to it."""
    path = spelled(patch.write.base) if patch.write is not None else ""
    is_guess = (
        patch.sure == Confidence.POSSIBLE and path == "self"
    )  # of the function's own object who binds it knows more
    if not path or is_guess:
        return Reached(guards, release)
    owner = patch.target.rpartition(".")[0]
    kind = Kind.MODULE if guards.names.library.is_module(owner) else Kind.INSTANCE
    return Reached(guards, release, (path, Value(kind, owner)))


def is_unloaded(patch: Patch, release: Detailed) -> bool:
    """Whether a name is put into a module that is loaded, and there is none: then nothing is done."""
    return patch.spelling == Spelling.SYS_MODULES and release.lacks_yet(patch.target.rpartition(".")[0])


def _on(guards: Guards, patch: Patch, release: Detailed, asked: Asked) -> bool | None:
    run = run_on(guards, patch, release)
    reached = both(run.holds(condition, given) for condition, given in asked)
    return False if is_unloaded(patch, release) else reached


def _given(names: Names, patch: Patch) -> Given:
    """What the names at the write stand for, as far as that is one thing: of several texts, the patched name."""
    found: Given = {}
    attribute = patch.target.rpartition(".")[2]
    for (home, name), values in (patch.frame or {}).items():
        if len(values) == 1:
            found[home, name] = values[0].name if values[0].kind == Kind.TEXT else values[0]
        elif attribute in texts(values):
            found[home, name] = attribute
    for arg in getattr(patch.place, "args", ()):  # of a call in a loop over names
        around = scope_of(arg).home_of(arg.id) if isinstance(arg, ast.Name) else None
        if around is not None and attribute in texts(names.of(arg)):
            found.setdefault((around, arg.id), attribute)
    return found
