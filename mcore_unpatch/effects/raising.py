"""What raises on one release where code asks something of the library: a name is gone, a call does not fit."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.effects.asks import Ask
from mcore_unpatch.effects.handlers import is_caught
from mcore_unpatch.effects.records import Cause, Effect, Outcome, When
from mcore_unpatch.library.detailed import Definition, Detailed
from mcore_unpatch.library.signatures import Call, Wrong


class Raising:
    """Answers for one release; supplied: what files put there themselves."""

    def __init__(self, guards: Guards, release: Detailed, supplied: Collection[tuple[str, str]] = ()) -> None:
        self.guards, self.release, self._supplied = guards, release, supplied
        self.names: Names = guards.names
        self._reached: dict[ast.AST, bool | None] = {}
        self._of_ask: dict[Ask, tuple[Effect, ...]] = {}

    def of(self, ask: Ask) -> tuple[Effect, ...]:
        """What raises where something is asked."""
        if ask not in self._of_ask:
            self._of_ask[ask] = (*self._missing(ask), *self._misused(ask))
        return self._of_ask[ask]

    def runs(self, ask: Ask, exception: str) -> bool:
        """Whether an ask is reached, and nobody around it expects the exception."""
        return not is_caught(ask.node, exception) and self.reaches(ask.node) is not False

    def reaches(self, node: ast.AST) -> bool | None:
        """Whether a node is reached on the release."""
        if node not in self._reached:
            self._reached[node] = Reached(self.guards, self.release).at(node)
        return self._reached[node]

    # -- names -------------------------------------------------------------------------------------------------------

    def _missing(self, ask: Ask) -> Iterator[Effect]:
        name, release = ask.on(self.release), self.release
        if (ask.by_name and not ask.module) or release.has(name) is not False:
            return
        if ask.when == When.CALL and (ask.path, name) in self._supplied:
            return
        if not release.ever(name):
            return  # it may be a fork's
        owner = name.rpartition(".")[0]
        within = self.names.library.within(owner)
        if not ask.module and within and release.has(owner) is False:
            return  # its module or class is gone, which is said where that is read
        kind, exception = Outcome.NAME_GONE, "AttributeError"
        if ask.module:
            is_there = release.has(ask.module)
            kind, exception = (
                (Outcome.IMPORT_GONE, "ImportError") if is_there else (Outcome.MODULE_GONE, "ModuleNotFoundError")
            )
        if self.runs(ask, "ImportError" if ask.module else exception):
            yield Effect(kind, (release.label,), Cause(name, self.now(name)), ask.place, exception)

    def now(self, name: str) -> str:
        """Where the release has what an older one had under a name."""
        last = next((one for one in reversed(self.release.older()) if one.has(name)), None)
        before = last.define(name) if last is not None else None
        return self.release.moved(before) if before is not None else ""

    # -- calls -------------------------------------------------------------------------------------------------------

    def _misused(self, ask: Ask) -> Iterator[Effect]:
        name, release = ask.on(self.release), self.release
        found = release.define(name) if ask.call is not None else None
        if ask.call is None or found is None:
            return
        wrong = self.misfit(ask, found, ask.call)
        if wrong is not None and self.runs(ask, "TypeError"):
            cause = Cause(name, wrong.misfit.value, wrong.names)
            yield Effect(Outcome.CALL_UNFIT, (release.label,), cause, ask.place, "TypeError")
        if ask.call.unpacked and found.gives and found.gives != ask.call.unpacked and self.runs(ask, "ValueError"):
            cause = Cause(name, "", (str(ask.call.unpacked), str(found.gives)))
            yield Effect(Outcome.UNPACKED, (release.label,), cause, ask.place, "ValueError")

    def misfit(self, ask: Ask, found: Definition, call: Call) -> Wrong | None:
        """Why a call does not fit the release."""
        taken = self.release.taken(found.name)
        wrong = taken.misfit(seen_by(found, call, self.release, ask)) if taken is not None else None
        if wrong is not None and not ask.through_class and self._is_taken_below(found.name, call):
            return None
        return wrong

    def _is_taken_below(self, name: str, call: Call) -> bool:
        """Whether the object may be of a subclass whose own method takes a call."""
        owner, _, method = name.rpartition(".")
        below = self.release.derived.get(owner, ()) if method != "__init__" else ()
        own = (sub for sub in below if self.release.entry(f"{sub}.{method}") is not None)
        others = (self.release.taken(f"{sub}.{method}") for sub in own)
        return any(taken is not None and taken.misfit(call) is None for taken in others)

    def is_ours(self, ask: Ask, targets: Mapping[str, object], own: str = "") -> bool:
        """Whether a call reaches what the repository itself puts in place, so that its own function tells what fits."""
        name = ask.on(self.release)
        found = self.release.define(name)
        names = {ask.name, name, *([found.name, f"{found.name}.__init__"] if found is not None else [])}
        owner, _, method = name.rpartition(".")
        holder = self.release.define(owner)
        if holder is not None and (holder.letter == "m" or not ask.through_class):
            names |= {f"{each}.{method}" for each in (holder.name, *self.release.derived.get(holder.name, ()))}
        if not any(one in targets and one != own for one in names):
            return False
        called = ask.node.func if isinstance(ask.node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id != method:  # `original(...)`, kept before
            home = scope_of(called).home_of(called.id)
            return not (ask.through_class or home is None or home.function() is None)
        return not ask.by_name


def seen_by(found: Definition, call: Call, release: Detailed, ask: Ask) -> Call:
    """A call as the function sees it: of `Class.method(object, ...)` the object does not count."""
    if ask.added and (taken := release.taken(found.name)) is not None:
        passed = tuple(name for name in call.keywords if name not in ask.added)
        given = ask.added.intersection(taken.names).difference(taken.positional[: call.positions])
        call = call._replace(positions=min(call.positions, len(taken.positional)), keywords=(*passed, *sorted(given)))
    if not ask.through_class or not release.is_method(found) or found.entry.trait("static") is not None:
        return call
    if found.letter != "f" or found.entry.trait("class") is not None or not call.positions:
        return call
    return call._replace(positions=call.positions - 1)
