"""What the step between two releases does to everything else that a file uses of the library, patches apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mcore_unpatch.code.module import Module, qualified
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, children
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.asks import Ask
from mcore_unpatch.effects.callers import Answer, method_takes
from mcore_unpatch.effects.changes import of_ask
from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.records import Effect, When, place_of
from mcore_unpatch.library.detailed import Detailed, How, Use


class Uses:
    """The uses of one repository, judged with its patches."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._names, self._asks = judge, judge.names, judge.asks
        self._asked: dict[str, list[Ask]] = {}

    def of(self, module: Module) -> list[Ask]:
        """Everything that a file asks of the library: what it imports, reads and calls."""
        if module.path not in self._asked:
            found = list(self._asks.of_import(module, follow=False))
            for one in _definitions(module.tree):
                if isinstance(one, NAMED_FUNCTIONS):
                    found += self._asks.of_code(one, When.CALL, follow=False)
            self._asked[module.path] = found
        return self._asked[module.path]

    def step(self, module: Module, old: Detailed, new: Detailed) -> list[Effect]:
        """What the step does to them; what is broken on both has both releases."""
        before, now = self._judge.raising(old), self._judge.raising(new)
        found: list[Effect] = []
        for ask in self.of(module):
            if ask.call is not None and now.is_ours(ask, self._judge.targets):
                continue
            then = before.of(ask)
            for one in now.of(ask):
                both = any(one.is_same(other) for other in then)
                found.append(replace(one, releases=(old.label, *one.releases)) if both else one)
            found += of_ask(ask, old, now)
        for cls in (one for one in _definitions(module.tree) if isinstance(one, ast.ClassDef) and one.bases):
            found += self._overridden(cls, module, old, new)
        return list(dict.fromkeys(found))

    # -- subclasses --------------------------------------------------------------------------------------------------

    def _overridden(self, cls: ast.ClassDef, module: Module, old: Detailed, new: Detailed) -> Iterator[Effect]:
        """Methods that override what the library calls, where its calls do not fit any more."""
        lineage = self._names.lineage(Value(Kind.CLASS, qualified(cls), cls))[1:]
        base = next((one.name for one in lineage if one.node is None and self._names.library.within(one.name)), "")
        if not base or self._judge.raising(new).reaches(cls) is False:
            return
        methods = [item for item in cls.body if isinstance(item, NAMED_FUNCTIONS)]
        own = {method.name for each in lineage if each.node is not None for method in _methods(each.node)}
        own |= {method.name for method in methods}
        for method in methods:
            taken = method_takes(method)
            if taken is None or (method.name.startswith("__") and method.name != "__init__"):
                continue
            target = f"{base}.{method.name}"
            then, now = ([*_reaching(release, target, own)] for release in (old, new))
            if old.define(target) is None or any(use.call and taken.misfit(use.call) for use in then):
                continue  # not called by the library, or broken before
            answer = Answer(method, taken, target, place_of(method, module.path))
            wrong = [*answer.not_taken(now, new.label)]
            yield from wrong
            if not wrong:
                fits = any(not [*answer.unpacked([use], new.label)] for use in now if use.call and use.call.unpacked)
                yield from answer.unpacked(now, new.label) if not fits else ()
                yield from answer.dropped(then, now, new.label)


def _reaching(release: Detailed, target: str, own: set[str]) -> Iterator[Use]:
    """The library's calls that a subclass may answer, made by methods that it has not replaced itself.

    Its constructor is called where a spec names it: such a call gives more than is written.
    """
    owner, _, name = target.rpartition(".")
    is_built = name == "__init__"
    for use in release.calls(target):
        caller, _, method = use.place.rpartition(".")
        through_spec = is_built and use.how == How.EXACT and use.call is not None and use.call.double_star
        if through_spec or (use.how == How.CALLED and not (caller in release.lineage(owner) and method in own)):
            yield use


def _methods(cls: Any) -> Iterator[Any]:
    return (item for item in cls.body if isinstance(item, NAMED_FUNCTIONS))


def _definitions(tree: ast.AST) -> Iterator[Any]:
    """The outermost functions of a file, its classes, and their methods."""
    todo: list[Any] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, (*NAMED_FUNCTIONS, ast.ClassDef)):
            yield node
        if not isinstance(node, (ast.expr, *NAMED_FUNCTIONS)):
            todo += children(node)
