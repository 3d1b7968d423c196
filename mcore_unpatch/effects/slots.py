"""Classes of the repository that its specs name: in which slots they stand, and how a release builds those."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name, own_nodes, spelled
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.callers import method_takes
from mcore_unpatch.effects.keywords import handed_on
from mcore_unpatch.effects.records import Cause, Effect, Outcome, place_of
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.facts import Use
from mcore_unpatch.library.signatures import Call, Signature

_DEEPEST = 3  # functions that make a spec with others


class Slot(NamedTuple):
    """A field of a class that holds the parts of another; without its holder where only the field is known."""

    holder: str
    field: str


class Slots:
    """Where the specs of one repository put its classes."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._of: dict[ast.ClassDef, list[Slot]] = {}

    def unbuildable(self, cls: ast.ClassDef, old: Detailed, new: Detailed) -> Iterator[Effect]:
        """A class whose constructor does not take what the newer release passes, and took what the older one did."""
        for slot in self.of(cls):
            every = _building(slot, new)
            now = [use for uses in every.values() for use in uses]
            wrongs = [self._wrong(cls, use, new) for use in now]
            before = (use for uses in _building(slot, old).values() for use in uses)
            if not (all(wrongs) and all(every.values()) and wrongs) or any(
                self._wrong(cls, use, old) for use in before
            ):
                continue
            init = _constructor(cls) or cls
            cause = Cause(f"{slot.field}.{cls.name}.__init__", now[0].place, wrongs[0])
            place = place_of(init, scope_of(cls).module.path)
            yield Effect(Outcome.NOT_TAKEN, (new.label,), cause, place, "TypeError")
            return

    def of(self, cls: ast.ClassDef) -> list[Slot]:
        """The slots that name a class."""
        if cls not in self._of:
            index = self._names.index
            named = re.compile(rb"(=|\()\s*(\w+\.)*%b\b" % cls.name.encode())
            saying = (
                path for path in index.saying(cls.name) if not is_test(path) and named.search(index.sources[path])
            )
            modules = map(index.module, saying)
            found = (slot for module in modules if module is not None for slot in self._named_in(module, cls))
            self._of[cls] = list(dict.fromkeys(found))
        return self._of[cls]

    def _named_in(self, module: Any, cls: ast.ClassDef) -> Iterator[Slot]:
        for call in module.calls:
            for word in call.keywords:
                if word.arg is not None and self._makes(word.value, cls, _DEEPEST):
                    yield Slot(self._holder(call), word.arg)
        for store in module.stores:
            *_, field, last = ["", "", *spelled(store.target).split(".")]
            if isinstance(store.target, ast.Attribute) and self._makes(store.value, cls, _DEEPEST):
                yield Slot("", field if last == "module" else last)

    def _holder(self, call: ast.Call) -> str:
        """The library's class of parts that a call makes, or one of the repository makes in its place."""
        found = [value for value in self._names.of(call.func) if value.kind == Kind.CLASS]
        every = (one for value in found for one in self._names.lineage(value))
        return next((one.name.rpartition(".")[2] for one in every if one.node is None), last_name(call.func))

    def _makes(self, node: ast.AST | None, cls: ast.ClassDef, depth: int) -> bool:
        """Whether a value is a class, or a spec that names it."""
        if isinstance(node, ast.IfExp):
            return self._makes(node.body, cls, depth) and self._makes(node.orelse, cls, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            if last_name(node) == cls.name:
                return any(one.node is cls for one in self._names.of(node))
            bindings = scope_of(node).bindings(node.id) if isinstance(node, ast.Name) and depth else []
            return any(isinstance(one.value, ast.Call) and self._makes(one.value, cls, depth - 1) for one in bindings)
        if not isinstance(node, ast.Call) or not depth:
            return False
        given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "module")]
        if any(isinstance(one, (ast.Name, ast.Attribute)) and self._makes(one, cls, 0) for one in given):
            return self._names.library.within(_named(self._names, node)) or last_name(node.func) == "partial"
        made = [one.node for one in self._names.of(node.func) if one.kind == Kind.FUNCTION and one.node is not None]
        returned = (one.value for function in made[:1] for one in own_nodes(function, ast.Return))
        return any(self._makes(value, cls, depth - 1) for value in returned)

    def _wrong(self, cls: ast.ClassDef, use: Use, release: Detailed) -> tuple[str, ...]:
        """Why a release cannot build a class with a call; nothing where it can, or nobody knows."""
        assert use.call is not None
        init = _constructor(cls)
        above = self._above(cls, release)
        if init is None:
            return _misfit(above, use.call) if len(cls.bases) == 1 else ()
        taken = method_takes(init)
        if taken is None or (wrong := _misfit(taken, use.call)):
            return () if taken is None else wrong
        if not any(last_name(call.func) == "__init__" for call in handed_on(init)):
            return ()
        said = {node.value for node in ast.walk(init) if isinstance(node, ast.Constant)}
        more = tuple(name for name in use.call.keywords if name not in taken.names and name not in said)
        return _misfit(above, Call(0, more, True, True))

    def _above(self, cls: ast.ClassDef, release: Detailed) -> Signature | None:
        """What the nearest constructor above a class takes."""
        for base in self._names.lineage(Value(Kind.CLASS, "", cls))[1:]:
            if base.node is None:
                return release.taken(release.name_of(base.name)) if self._names.library.within(base.name) else None
            init = _constructor(base.node)
            if init is not None:
                return method_takes(init)
        return None


def _constructor(cls: Any) -> Any:
    return next((item for item in cls.body if getattr(item, "name", "") == "__init__"), None)


def _named(names: Names, call: ast.Call) -> str:
    return next((one.name for one in names.of(call.func) if one.kind == Kind.CLASS and one.node is None), "")


def _misfit(taken: Signature | None, call: Call) -> tuple[str, ...]:
    wrong = taken.misfit(call) if taken is not None else None
    return (wrong.misfit.value, *wrong.names) if wrong is not None else ()


def _building(slot: Slot, release: Detailed) -> dict[str, set[Use]]:
    """The calls with which each holder of a slot builds it, told by the classes that stand in no other slot of it."""
    found: dict[str, set[Use]] = {}
    for name, others in release.in_specs.items():
        for other in others:
            holder, _, field = other.partition(".")
            if field != slot.field or slot.holder not in ("", holder):
                continue
            uses = found.setdefault(holder, set())
            if [one for one in others if one.startswith(f"{holder}.")] == [other]:
                every = (
                    use for use in release.uses(f"{name}.__init__") if use.call is not None and use.call.double_star
                )
                uses.update(use for use in every if _holds(use.place, holder, release))
    return found


def _holds(place: str, holder: str, release: Detailed) -> bool:
    """Whether a method is one of the class whose parts a class names, or of a base: `Attention` of `AttentionParts`."""
    owner = place.rpartition(".")[0]
    leaves = [one.rpartition(".")[2] for one in (owner, *release.derived.get(owner, ()))]
    stems = [stem for leaf in leaves for stem in (leaf, leaf.removesuffix("Layer")) if stem]
    return any(holder.startswith(stem) and holder[len(stem) :][:1].isupper() for stem in stems)
