"""On which releases a patch is made: where its place is reached, and the place of the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from mcore_unpatch.code.conditions import Condition, Way
from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.code.syntax import last_name, spelled, walk
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.code.worth import Given, both
from mcore_unpatch.library.interface import Release
from mcore_unpatch.patches.records import Patch, Spelling


def alive(guards: Guards, patch: Patch, releases: Sequence[Release]) -> list[bool | None]:
    """Whether a patch is made, release by release; where a function makes it, some call of that has to be reached."""
    given = _given(patch)
    made = [_on(guards, patch, release, given) for release in releases]
    calls = installing_calls(guards, patch)
    if not calls:
        return made
    called = [_is_called(guards, calls, release) for release in releases]
    if all(one is False for one, release in zip(called, releases, strict=True) if not release.is_later):
        return made  # whatever keeps it from being called is no question of the release
    return [False if reached is False else one for one, reached in zip(made, called, strict=True)]


def _is_called(guards: Guards, calls: list[ast.Call], release: Release) -> bool | None:
    """False where no call is reached on a release; asked once for all the patches that one function makes."""
    key = (calls[0], release.label)
    if key not in guards.called:
        run = Reached(guards, release)
        ways = [both(run.holds(one) for one in guards.conditions(call) if _is_asked(one)) for call in calls]
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


def _is_asked(condition: Condition) -> bool:
    """Whether a condition is a question: an import of what a release lacks breaks there, and is another matter."""
    if condition.way == Way.PASSED:
        return not isinstance(condition.node, (ast.Import, ast.ImportFrom))
    return condition.way == Way.TEST


def _calls_of(guards: Guards, function: Any) -> list[ast.Call]:
    names, name = guards.names, function.name
    calls = names.callers(function)
    if not any(_is_asked(one) for call in calls for one in guards.conditions(call)):
        return []
    called = {id(call.func) for call in calls}
    for path in names.index.saying(name):
        module = None if is_test(path) else names.index.module(path)
        for node in walk(module.tree) if module is not None else ():
            if last_name(node) == name and isinstance(getattr(node, "ctx", None), ast.Load) and id(node) not in called:
                return []  # handed on, or another of that name
    return calls


def _on(guards: Guards, patch: Patch, release: Release, given: Given) -> bool | None:
    write = patch.write
    subject = None
    if write is not None and (path := spelled(write.base)):
        owner = patch.target.rpartition(".")[0]
        kind = Kind.MODULE if guards.names.library.is_module(owner) else Kind.INSTANCE
        subject = (path, Value(kind, owner))
    run = Reached(guards, release, subject)
    truths = [run.at(write.place if write is not None else patch.place, given or None)]
    if write is not None and write.place is not patch.place:
        truths.append(run.at(patch.place))
    if patch.spelling == Spelling.SYS_MODULES and release.lacks_yet(patch.target.rpartition(".")[0]):
        return False  # a name is put into a module that is loaded: where there is none, nothing is done
    return both(truths)


def _given(patch: Patch) -> Given:
    """What the names at the write stand for, as far as that is one thing."""
    found: Given = {}
    for key, values in (patch.frame or {}).items():
        if len(values) == 1:
            found[key] = values[0].name if values[0].kind == Kind.TEXT else values[0]
    return found
