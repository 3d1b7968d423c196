"""The one judge: what a release, or the step from one release to another, does to a patch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.reached import Guards
from mcore_unpatch.code.syntax import FUNCTIONS, ancestors, block_of, last_name, parameters
from mcore_unpatch.effects.asks import Ask, Asks, unpacked
from mcore_unpatch.effects.callers import Answer, method_takes
from mcore_unpatch.effects.changes import changes
from mcore_unpatch.effects.keywords import put_into
from mcore_unpatch.effects.raising import Raising
from mcore_unpatch.effects.records import Cause, Effect, Outcome, Place, When, place_of
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.signatures import Signature, written_call
from mcore_unpatch.patches.alive import alive
from mcore_unpatch.patches.records import Patch, Spelling

_ANYTHING = Signature((), any_position=True, any_keyword=True)


class Judge:
    """Judges the patches of one repository; everything that asks for no release is read once."""

    def __init__(self, names: Names, patches: Sequence[Patch]) -> None:
        self.names, self.guards, self.asks = names, Guards(names), Asks(names)
        self.cases = {patch: Replaced(patch, names) for patch in patches}
        self.targets: dict[str, Replaced] = {case.target: case for case in self.cases.values()}
        self._supplied = {(patch.path, patch.target) for patch in patches}
        self._raising: dict[str, Raising] = {}
        self._on: dict[tuple[Patch, str], tuple[Effect, ...]] = {}
        self._asked: dict[Patch, list[Ask]] = {}

    def raising(self, release: Detailed) -> Raising:
        """What raises on a release."""
        if release.label not in self._raising:
            self._raising[release.label] = Raising(self.guards, release, self._supplied)
        return self._raising[release.label]

    def on(self, patch: Patch, release: Detailed) -> tuple[Effect, ...]:
        """What a release does to a patch."""
        key = (patch, release.label)
        if key not in self._on:
            self._on[key] = tuple(dict.fromkeys(self._judged(self.cases[patch], release)))
        return self._on[key]

    def step(self, patch: Patch, old: Detailed, new: Detailed) -> list[Effect]:
        """What the step from one release to another does to a patch, the worst first."""
        case = self.cases[patch]
        here = place_of(patch.place, patch.path)
        if alive(self.guards, patch, [new]) == [False]:
            broken = [one for one in self._imports(case, new) if one.raises]
            return broken or [Effect(Outcome.NEVER_RUNS, (new.label,), Cause(patch.target), here)]
        old = self._first_that_runs(patch, old, new)
        before, found = self.on(patch, old), list(self.on(patch, new))
        found = [self._with_before(one, before, case, old) for one in found]
        found += changes(self, case, old, new)
        raises = [one for one in found if one.raises]
        differs = [one for one in found if one.differs]
        quiet = [one for one in found if not one.raises and not one.differs]
        if any(one.kind == Outcome.UPSTREAMED for one in quiet) and not raises:
            return quiet
        if any(one.kind == Outcome.NEVER_CALLED for one in quiet):
            differs = [one for one in differs if one.kind not in (Outcome.BEHIND, Outcome.BODY_CHANGED)]
        return [*raises, *differs, *quiet] or [Effect(Outcome.NONE, (new.label,), Cause(patch.target), here)]

    def _with_before(self, effect: Effect, before: Sequence[Effect], case: Replaced, old: Detailed) -> Effect:
        """An effect with the older release, where it is the same there; what was called and is no longer, stops."""
        if any(effect.is_same(one) for one in before):
            return replace(effect, releases=(old.label, *effect.releases))
        if effect.kind == Outcome.NEVER_CALLED and old.define(case.target) is not None:
            uses = (*old.calls(case.target), *old.uses(case.target))
            if uses:
                return replace(effect, kind=Outcome.STOPPED, cause=effect.cause._replace(by=uses[0].place))
        return effect

    def _first_that_runs(self, patch: Patch, old: Detailed, new: Detailed) -> Detailed:
        """The release on which a patch begins to run, where the older one of two does not run it."""
        between = [one for one in new.older() if one.label == old.label or one in new.older()[len(old.older()) :]]
        return next((one for one in between if alive(self.guards, patch, [one]) != [False]), old)

    # -- one release -------------------------------------------------------------------------------------------------

    def _judged(self, case: Replaced, release: Detailed) -> Iterator[Effect]:
        if case.answer is not None:
            yield from case.answer.not_taken(release.calls(case.target), release.label)
        yield from self._class_not_taken(case, release)
        if case.function is not None and not case.adds:
            answer = Answer(case.function, _ANYTHING, case.target, _here(case))
            yield from answer.unpacked(release.calls(case.target), release.label)
        yield from self._asks_of(case, release)
        yield from self._idle(case, release)

    def _class_not_taken(self, case: Replaced, release: Detailed) -> Iterator[Effect]:
        """Calls that build the class that is replaced, or call its methods, and do not fit the new one."""
        found = release.define(case.target) if case.own_class is not None else None
        if found is None or found.letter != "c":
            return
        derived = case.derives_from(found.name)
        for method in case.functions:
            taken = method_takes(method)
            if taken is None or (derived and method.name != "__init__"):
                continue
            shift, called = (1, "forward") if method.name == "apply" else (0, method.name)
            for use in release.calls(f"{found.name}.{called}"):
                assert use.call is not None
                caller, module = use.place.rpartition(".")[0], found.name.rpartition(".")[0]
                if not use.sure and not use.place.startswith(f"{module}."):
                    continue  # told by the name of the method alone
                if found.name in release.lineage(caller)[1:]:
                    continue  # a subclass calls the class that it was made with
                if (
                    method.name != "__init__"
                    and caller in release.lineage(found.name)
                    and not case.derives_from(caller)
                ):
                    continue  # what the library's class inherits, the new one does not
                answer = Answer(method, taken, case.target, _here(case))
                if wrong := [*answer.not_taken([use], release.label, shift)]:
                    yield from wrong
                    return

    def _idle(self, case: Replaced, release: Detailed) -> Iterator[Effect]:
        """What is never called: a name that the release does not have, or one that is read before."""
        if case.adds or not self.names.library.within(case.target):
            return
        if release.has(release.name_of(case.target)) is False and not self.is_used(case):
            raising = self.raising(release)
            if case.is_alone and (release.lacks_yet(case.target) or raising.now(case.target) == case.target):
                return  # an object is one of the class that the release has, if there is one
            if case.patch.spelling == Spelling.MOCK:
                cause = Cause(case.target, raising.now(case.target))
                yield Effect(Outcome.NAME_GONE, (release.label,), cause, _here(case, When.INSTALL), "AttributeError")
            elif not case.attribute.startswith("__"):
                cause = Cause(case.target, raising.now(case.target))
                yield Effect(Outcome.NEVER_CALLED, (release.label,), cause, _here(case))

    def is_used(self, case: Replaced) -> bool:
        """Whether the file itself calls what it sets there."""
        for call in case.patch.module.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == case.attribute:
                if any(one.name == case.owner for one in self.names.of(call.func.value)):
                    return True
        return False

    # -- what the replacement asks of the library --------------------------------------------------------------------

    def asked(self, case: Replaced) -> list[Ask]:
        """Everything that a patch asks: on import, where it is installed, when it is called."""
        if case.patch not in self._asked:
            self._asked[case.patch] = list(dict.fromkeys(self._asked_of(case)))
        return self._asked[case.patch]

    def _asked_of(self, case: Replaced) -> Iterator[Ask]:
        for home in case.homes:
            yield from self.asks.of_import(home)
        place = case.patch.write.place if case.patch.write is not None else case.patch.place
        for parent, _ in ancestors(place):
            if isinstance(parent, FUNCTIONS):
                asks = self.asks.of_code(parent, When.INSTALL, inner=False)
                yield from (ask for ask in asks if _hinders(ask, parent, place))
        for node in case.originals.reads_by_name:
            yield Ask((case.target,), node, When.INSTALL, case.patch.path)
        for function in case.functions:
            yield from self.asks.of_code(function, When.CALL)
        yield from self._of_originals(case)

    def _of_originals(self, case: Replaced) -> Iterator[Ask]:
        """The calls of what was replaced, by whatever name."""
        known = {id(ask.node) for function in case.functions for ask in self.asks.of_code(function, When.CALL)}
        for call in case.originals.calls:
            if id(call) not in known:
                yield _of_original(call, case)

    def _imports(self, case: Replaced, release: Detailed) -> Iterator[Effect]:
        raising = self.raising(release)
        for home in case.homes:
            for ask in self.asks.of_import(home):
                yield from raising.of(ask)

    def _asks_of(self, case: Replaced, release: Detailed) -> Iterator[Effect]:
        raising = self.raising(release)
        for ask in self.asked(case):
            found = raising.of(ask)
            if not found:
                continue
            if ask.call is not None and self.is_ours(case, ask, raising):
                found = tuple(one for one in found if one.kind not in (Outcome.CALL_UNFIT, Outcome.UNPACKED))
            yield from found

    def is_ours(self, case: Replaced, ask: Ask, raising: Raising) -> bool:
        """Whether a call of the replacement reaches another function that the repository puts in place."""
        if case.is_alone and ask.name == case.target and case.target in self.targets:
            if not self.targets[case.target].is_alone:
                return True  # what the object had is what was put on its class
        return raising.is_ours(ask, self.targets, case.target)


def _here(case: Replaced, when: When = When.CALL) -> Place:
    return place_of(case.patch.place, case.patch.path, when)


def _of_original(call: ast.Call, case: Replaced) -> Ask:
    """A call of what was replaced, by whatever name: `original(self, ...)`, `self._old(...)`."""
    first = next(iter(parameters(case.function)), None)
    passed = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_type = isinstance(owner, ast.Call) and last_name(owner.func) == "type"
    through = of_type or (case.is_bound and first is not None and passed == first.arg)
    path = scope_of(call).module.path
    return Ask(
        (case.target,), call, When.CALL, path, written_call(call, unpacked(call), put_into(call)), "", True, through
    )


def _hinders(ask: Ask, function: Any, place: ast.AST) -> bool:
    """Whether what is asked comes before the patch, on the way to it; of helpers that is not told apart."""
    around = next((parent for parent, _ in ancestors(ask.node) if isinstance(parent, FUNCTIONS)), None)
    if around is not function:
        return True
    if getattr(ask.node, "lineno", 0) > (getattr(place, "end_lineno", 0) or 0):
        return False
    blocks = {id(parent): child for parent, child in ancestors(place)}
    for parent, child in ancestors(ask.node):
        if id(parent) in blocks:
            own = blocks[id(parent)]
            mine, other = block_of(parent, child), block_of(parent, own)
            return not (isinstance(parent, ast.If) and mine and other and mine is not other)
        if isinstance(parent, (ast.If, ast.ExceptHandler, ast.For, ast.While)):
            return False
    return True
