"""What the step between two releases does to everything else that a file uses of the library, patches apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mcore_unpatch.code.module import Module, qualified, scope_of
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, ancestors, children, last_name
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.asks import Ask
from mcore_unpatch.effects.callers import Answer, method_takes
from mcore_unpatch.effects.changes import of_ask
from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.parts import Parts
from mcore_unpatch.effects.records import Cause, Effect, Outcome, When, place_of
from mcore_unpatch.effects.slots import Slots
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.facts import How, Use


class Uses:
    """The uses of one repository, judged with its patches."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._names, self._asks = judge, judge.names, judge.asks
        self._slots, self._parts = Slots(judge.names), Parts(judge.names)
        self._placed = {case.own_class for case in judge.cases.values()}  # judged with their patches
        self._asked: dict[str, list[Ask]] = {}
        self._replacements = {function for case in judge.cases.values() for function in case.functions}

    def of(self, module: Module) -> list[Ask]:
        """Everything that a file asks of the library: what it imports, reads and calls."""
        if module.path not in self._asked:
            found = list(self._asks.of_import(module, follow=False))
            for one in _definitions(module.tree):
                if isinstance(one, NAMED_FUNCTIONS):
                    found += self._asks.of_code(one, When.CALL, follow=False)
            self._asked[module.path] = [ask for ask in found if not self._is_of_patch(ask)]
        return self._asked[module.path]

    def _is_of_patch(self, ask: Ask) -> bool:
        """Whether an ask stands in what takes the library's place: that is judged with its patch."""
        return any(parent in self._replacements for parent, _ in ancestors(ask.node))

    def on(self, module: Module, release: Detailed) -> list[Effect]:
        """What raises on one release."""
        raising = self._judge.raising(release)
        asks = (ask for ask in self.of(module) if ask.call is None or not raising.is_ours(ask, self._judge.targets))
        return list(dict.fromkeys(effect for ask in asks for effect in raising.of(ask)))

    def step(self, module: Module, old: Detailed, new: Detailed) -> list[Effect]:
        """What the step does to them; what is broken on both has both releases."""
        before, now = self._judge.raising(old), self._judge.raising(new)
        classes = [one for one in _definitions(module.tree) if isinstance(one, ast.ClassDef) and one.bases]
        found = [one for cls in classes for one in self._overridden(cls, module, old, new)]
        found += [one for cls in classes if cls not in self._placed for one in self._slots.unbuildable(cls, old, new)]
        found += self._parts.gone(module, old, now)
        stopped = {one.place.line for one in found if one.kind == Outcome.STOPPED}
        for ask in self.of(module):
            if stopped and any(getattr(parent, "lineno", 0) in stopped for parent, _ in ancestors(ask.node)):
                continue  # nobody calls the method that it stands in
            if ask.call is not None and now.is_ours(ask, self._judge.targets):
                continue
            then = before.of(ask)
            for one in now.of(ask):
                both = any(one.is_same(other) for other in then)
                found.append(replace(one, releases=(old.label, *one.releases)) if both else one)
            found += of_ask(ask, old, now)
            found += self._nowhere(ask, old, new)
        return list(dict.fromkeys(found))

    def _nowhere(self, ask: Ask, old: Detailed, new: Detailed) -> Iterator[Effect]:
        """A name of a module that no release has: what is in use is another one."""
        owner = ask.module or ask.name.rpartition(".")[0]
        home = new.define(owner)
        is_member = ask.through_class and home is not None and home.letter == "m"
        if not (ask.module or is_member) or any(new.ever(name) or new.has(name) is not False for name in ask.names):
            return
        brought, leaf = self._judge.brought, ask.name.rpartition(".")[2]
        names = {ask.name, f"{home.name}.{leaf}" if home is not None else ask.name}
        if any(map(brought.adds, names)) or brought.sets(leaf) or self._names.index.find(owner, ask.path) is not None:
            return
        kind, exception = Outcome.NAME_GONE, "AttributeError"
        if ask.module:
            gone = (Outcome.MODULE_GONE, "ModuleNotFoundError")
            kind, exception = (Outcome.IMPORT_GONE, "ImportError") if home is not None else gone
        if self._judge.raising(new).runs(ask, "ImportError" if ask.module else exception):
            parts = owner.split(".")
            is_unknown = any(old.has(".".join(parts[:end])) is None for end in range(1, len(parts) + 1))
            labels = (new.label,) if is_unknown else (old.label, new.label)
            yield Effect(kind, labels, Cause(ask.name), ask.place, exception)

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
            if any(use.call and taken.misfit(use.call) for use in then):
                continue  # broken before
            answer = Answer(method, taken, target, place_of(method, module.path))
            wrong = [*answer.not_taken(now, new.label)]
            if old.define(target) is None:
                fresh = now if old.has(base) and new.define(target) is not None else []
                cause = Cause(target, fresh[0].place if fresh else "")
                yield from (wrong or [Effect(Outcome.NEW, (new.label,), cause, answer.place)]) if fresh else ()
                continue
            if then and new.define(target) is None and new.has(base) and not _is_called(method):
                yield Effect(Outcome.STOPPED, (new.label,), Cause(target, then[0].place), answer.place)
                continue
            if method.name == "__init__" and len(wrong) and not all(use.call and taken.misfit(use.call) for use in now):
                continue  # built by one of several, which one is not known
            yield from wrong
            if not wrong:
                fitted = any(use.call and use.call.unpacked and not [*answer.unpacked([use], "")] for use in then)
                fits = any(not [*answer.unpacked([use], new.label)] for use in now if use.call and use.call.unpacked)
                yield from answer.unpacked(now, new.label) if fitted and not fits else ()
                yield from answer.dropped(then, now, new.label)


def _is_called(method: Any) -> bool:
    """Whether its file calls a method by its name, other than what it overrides."""
    called = (call.func for call in scope_of(method).module.calls)
    named = (func.value for func in called if isinstance(func, ast.Attribute) and func.attr == method.name)
    return any(last_name(getattr(of, "func", None)) != "super" for of in named)


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
