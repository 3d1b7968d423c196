"""When a patch runs, for people and for codemods: the releases, the statements that rule out the others, and what else.

`alive` has the answer for each release; here is what the answer comes from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from mcore_unpatch.code.conditions import Condition, Way, may_leave
from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.code.syntax import parent_of, spelled, text_of
from mcore_unpatch.code.worth import Given, both, truth
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.patches.alive import (
    Asked,
    conditions_of,
    conditions_of_call,
    installing_calls,
    is_called,
    is_unloaded,
    run_on,
)
from mcore_unpatch.patches.records import Guard, Lives, Patch

# What is asked of the object at hand, on every release: whether it is there, is of a class, was patched before.
_OF_THE_OBJECT = ("isinstance", "issubclass", "hasattr", "getattr", "callable")
_MARK = "_"  # begins the names of what a patch leaves behind
_LONGEST = 100  # letters of a part of a condition that is told
_TURNED = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {**_TURNED, **{other: sign for sign, other in _TURNED.items()}}


def live_of(guards: Guards, patch: Patch, releases: Sequence[Detailed]) -> Lives:
    """The releases on which a patch is made, what rules the others out, and what else it depends on."""
    runs = [run_on(guards, patch, release) for release in releases]
    held = [_Held(condition, given, runs) for condition, given in _as_written(conditions_of(guards, patch))]
    called = is_called(guards, patch, releases)
    made = [
        False if called[at] is False or is_unloaded(patch, release) else both(one.truths[at] for one in held)
        for at, release in enumerate(releases)
    ]
    on = _on(releases, made)
    if all(made):
        return on
    ruling = [one.guard() for one in held if False in one.truths]
    if unloaded := tuple(one.label for one in releases if not one.is_later and is_unloaded(patch, one)):
        ruling.append(Guard(patch.line, patch.place.end_lineno, "loaded", unloaded))
    calls = installing_calls(guards, patch)
    if len(calls) == 1 and False in called:
        path = scope_of(calls[0]).module.path
        runs = [Reached(guards, release) for release in releases]
        asked = (_Held(condition, None, runs) for condition in conditions_of_call(guards, calls[0]))
        ruling += [one.guard(path) for one in asked if False in one.truths]
    depends = (one.words(made) for one in held)
    return on._replace(depends=tuple(dict.fromkeys(filter(None, depends))), guards=tuple(ruling))


def lives_at(guards: Guards, node: ast.AST, releases: Sequence[Detailed]) -> Lives:
    """The releases on which a place is reached that is no patch, and what rules the others out."""
    runs = [Reached(guards, release) for release in releases]
    asked: Asked = [(one, None) for one in guards.conditions(node)]
    held = [_Held(condition, given, runs) for condition, given in _as_written(asked)]
    made = [both(one.truths[at] for one in held) for at in range(len(releases))]
    return _on(releases, made)._replace(guards=tuple(one.guard() for one in held if False in one.truths))


def _on(releases: Sequence[Detailed], made: Sequence[bool | None]) -> Lives:
    on = [release for release, truth in zip(releases, made, strict=True) if truth is not False]
    return Lives(tuple(one.label for one in on if not one.is_later), any(one.is_later for one in on))


def _as_written(asked: Asked) -> Iterator[tuple[Condition, Given | None]]:
    """The statements above in one block come in the order of the text; what is further in stays first."""
    for _, block in groupby(asked, lambda one: one[0].way == Way.PASSED and parent_of(one[0].node)):
        some = list(block)
        yield from reversed(some) if some[0][0].way == Way.PASSED else some


class _Held:
    """One condition, and on which releases it holds."""

    def __init__(self, condition: Condition, given: Given | None, runs: Sequence[Reached]) -> None:
        self.condition, self._given, self._runs = condition, given, runs
        runs[0].asked_release = False
        first = runs[0].holds(condition, given)
        self._asks = runs[0].asked_release
        rest = (run.holds(condition, given) for run in runs[1:]) if self._asks else [first] * (len(runs) - 1)
        self.truths = (first, *rest)

    def guard(self, path: str = "") -> Guard:
        """The statement that decides, and the releases that it rules out; `path`: of the call that it stands around."""
        branch, node = _owner(self.condition)
        dead = (run for run, held in zip(self._runs, self.truths, strict=True) if held is False and not run.is_later)
        labels = tuple(run.release.label for run in dead)
        return Guard(node.lineno, node.end_lineno, "call" if path else branch, labels, path, always=not self._asks)

    def words(self, made: Sequence[bool | None]) -> str:
        """What the condition asks for that no release decides; nothing for what is asked of the object.

        made: on which releases all of the conditions hold.
        """
        truths = zip(self._runs, self.truths, made, strict=True)
        run = next((run for run, held, all_of in truths if held is None and all_of is None), None)
        is_dead = all(one is False for one, run in zip(made, self._runs, strict=True) if not run.is_later)
        if run is None or (run.is_later and not is_dead):
            return ""
        test, wanted = _asked(self.condition)
        if test is None or truth(run.value(test, self._given)) is not None:
            return ""
        told, is_all = self._open(test, wanted is not False, run)
        if not told or (is_all and True not in self.truths and wanted is not None):
            return f"only if {' and '.join(told)}" if told else ""
        return f"depends on {', '.join(word.removeprefix('not ') for word in told)}"

    def _open(self, test: ast.expr, wanted: bool, run: Reached) -> tuple[list[str], bool]:
        """What of a test could not be decided and has to hold, and whether that is all that can be told of it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._open(test.operand, not wanted, run)
        if isinstance(test, ast.BoolOp):
            unknown = (value for value in test.values if truth(run.value(value, self._given)) is None)
            parts = [self._open(value, wanted, run) for value in unknown]
            told = [text for texts, _ in parts for text in texts]
            if len(parts) < 2 or isinstance(test.op, ast.And) is wanted:
                return told, all(is_all for _, is_all in parts)
            one_each = all(is_all and len(texts) == 1 for texts, is_all in parts)
            return ([f"({' or '.join(told)})"] if one_each else told), one_each
        text = ast.unparse(test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and not wanted and type(test.ops[0]) in _OPPOSITES:
            turned = ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators)
            text, wanted = ast.unparse(turned), True
        is_flag = isinstance(test, ast.Name) and test.id in scope_of(test).elsewhere
        if _asks_the_object(test) or is_flag or len(text) >= _LONGEST:
            return [], True
        return [f"`{text}`" if wanted else f"not `{text}`"], True


def _owner(condition: Condition) -> tuple[str, Any]:
    """The statement or expression that decides, and which branch of it the patch stands in."""
    node: Any = condition.node
    if condition.way == Way.PASSED:
        return "after", node
    if condition.way == Way.CAUGHT:
        return "except", parent_of(node)
    if condition.way == Way.TRIED:
        whole = condition.before and condition.before[-1] is node.body[-1]
        return "else" if whole else "try", node
    branch = "if" if condition.truth else "else"
    around = parent_of(node)
    return branch, around if isinstance(around, (ast.If, ast.While, ast.IfExp, ast.BoolOp)) else node


def _asked(condition: Condition) -> tuple[ast.expr | None, bool | None]:
    """The test of a condition, and how it has to come out: None where several branches leave."""
    node: Any = condition.node
    if condition.way == Way.TEST:
        return (None, None) if isinstance(parent_of(node), ast.While) else (node, condition.truth)
    if condition.way == Way.PASSED and isinstance(node, ast.If) and may_leave(node, by_choice=True):
        plain = may_leave(node.body[-1]) and not hasattr(node.body[-1], "body")
        return node.test, False if plain and not any(map(may_leave, node.orelse)) else None
    return None, None


def _asks_the_object(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, *node.comparators))
    if not isinstance(node, ast.Call) or spelled(node.func) not in _OF_THE_OBJECT:
        return False
    if spelled(node.func) != "getattr" or len(node.args) < 2:
        return True
    name = text_of(node.args[1])
    return name.startswith(_MARK) if name is not None else not isinstance(node.args[1], ast.Attribute)
