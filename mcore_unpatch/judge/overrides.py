"""Subclasses of Megatron's classes and functions handed to Megatron: do its own calls of them still fit?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.judge import dropped
from mcore_unpatch.judge.callers import callers
from mcore_unpatch.judge.case import taken_by
from mcore_unpatch.judge.demands import CALL, Demand
from mcore_unpatch.judge.handed_over import HandedOver, building, is_holder
from mcore_unpatch.judge.instead import absent, leaf, short, unfit
from mcore_unpatch.judge.meaning import written
from mcore_unpatch.judge.statement import CHANGES, IDLE, RAISES, STOPS, Statement, only_if
from mcore_unpatch.library.fact import Call, quoted
from mcore_unpatch.library.model import CALLED, Model, Usage
from mcore_unpatch.library.syntax import Function, given_counts, leaf_of
from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.bindings import own_class
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.sources.nodes import call_written, walk

_ABSTRACT = "abstract"


def overridden(home: Resolver, old: Model, new: Model, given: HandedOver) -> Iterator[Statement]:
    """What a step does to the classes of one file that Megatron builds, and to the methods of its subclasses."""
    for cls in home.model.classes:
        bases = _bases(cls, home)
        built = list(_built(cls, bases, home, old, new, given))
        yield from built
        before = next((name for name in bases if known.holds(old, name)), None)
        now = next((name for name in bases if known.holds(new, name)), None)
        at = home.on_line(cls.lineno)
        if before is None or now is None or not Demand(now, CALL, at).runs_on(new, "TypeError"):
            continue
        every = _methods(cls, home)
        for method in (item for item in cls.body if isinstance(item, Function)):
            known_slots = cls.name in given.stands_for or given.slots(given.family(cls.name), bases, new)[1]
            is_told = method.name == "__init__" and (built or known_slots)
            if not is_told and ((name := method.name) == "__init__" or not name.startswith("__")):
                target = _Override(cls, method, every, home, given)
                yield from target.between(f"{before}.{name}", f"{now}.{name}", old, new)
        yield from _abstract(cls, every.union(home.model.classes[cls].bindings), before, now, old, new, home)


def _bases(cls: ast.ClassDef, home: Resolver) -> list[str]:
    """The names of the class of Megatron's that a class derives from, as they are imported."""
    ref = own_class(cls, home)
    if not ref.is_core or not ref.sure:
        return []
    direct = (written(base, home) for base in cls.bases if isinstance(base, ast.Attribute | ast.Name))
    return [*(name for meant in direct if meant is not None for name in meant.names), ref.name]


def _methods(cls: ast.ClassDef, home: Resolver) -> set[str]:
    """The methods that a class has of the repository: its own, and those of the classes between it and Megatron's."""
    above = [(ref.node, ref.home) for ref in home.bases(cls) if ref.node is not cls]
    methods = {item.name for item in cls.body if isinstance(item, Function)}
    return methods.union(*(_methods(node, own) for node, own in above if isinstance(node, ast.ClassDef) and own))


class _Override:
    """One method of a subclass."""

    def __init__(
        self, cls: ast.ClassDef, method: Function, methods: set[str], home: Resolver, given: HandedOver
    ) -> None:
        self._cls, self._method, self._methods, self._home, self._given = cls, method, methods, home, given
        self._family = given.family(cls.name)
        self._shown = f"`{cls.name}.{method.name}`"

    def between(self, was: str, name: str, old: Model, new: Model) -> Iterator[Statement]:
        """What a step does to it."""
        then, now = old.find(was), new.find(name)
        if then is None and now is not None and now.fact.kind == "function":
            yield from self._came(name, new)
        if then is None or then.fact.kind != "function":
            return
        if now is None:
            callers_then = old.calls(was) if not self._is_called_here() else ()
            if callers_then and not new.calls(name) and (when := absent(was, new)):
                who = f"`{short(callers_then[0].place)}` of {old.label}"
                text = f"{self._shown} overrides what does not exist {when}: nothing calls it; {who} does"
                yield self._said(STOPS, f"{text}, so it stops without an error")
            return
        taken = taken_by(self._method)
        if taken is None:
            return
        before, after_ = list(self._reaching(old, was)), list(self._reaching(new, name))
        if any(usage.call is not None and taken.misfit(usage.call) for usage in before):
            return  # not called by Megatron, or broken before
        for usage in after_:
            assert usage.call is not None
            if wrong := taken.misfit(usage.call):
                text = f"`{short(usage.place)}` of megatron-core {new.label} {unfit(wrong, self._shown)}"
                text += only_if(*(usage for usage in after_ if usage.call is not None and taken.misfit(usage.call)))
                if self._gets_there(usage, name, new):
                    yield self._said(RAISES, text, "TypeError", usage.place)
                elif self._given.may_reach(self._family):
                    instead = leaf(name.rpartition(".")[0])
                    yield self._said(IDLE, f"{text}: TypeError where it is put in place of `{instead}`")
                return
        yield from self._returned(name, before, after_, new)
        for text, _ in dropped.swallowed(self._method, taken, before, after_, new):
            yield self._said(CHANGES, f"{self._shown} {text}")

    def _is_called_here(self) -> bool:
        """Whether other code of its file names the method: what calls it then is not Megatron alone."""
        method, tree = self._method, self._home.model.tree
        reads = (node for node in walk(tree) if isinstance(node, ast.Attribute) and node.attr == method.name)
        return any(not method.lineno <= read.lineno <= (method.end_lineno or 0) for read in reads)

    def _came(self, name: str, new: Model) -> Iterator[Statement]:
        """A method of the repository's own, of a name that the base class has now too: Megatron calls this one."""
        usage = next((usage for usage in self._reaching(new, name) if self._gets_there(usage, name, new)), None)
        if usage is None or usage.call is None:
            return
        text = f"{self._shown} overrides `{short(name)}`, which is new and which `{short(usage.place)}` calls"
        taken = taken_by(self._method)
        wrong = taken.misfit(usage.call) if taken is not None else ""
        if wrong:
            yield self._said(RAISES, f"{text}: it {unfit(wrong, 'yours')}", "TypeError", usage.place)
        else:
            yield self._said(CHANGES, text)

    def _reaching(self, model: Model, name: str) -> Iterator[Usage]:
        """The calls of the library that this method answers: not those of methods that the class has itself."""
        base = known_name(name.rpartition(".")[0], model)
        family, siblings = model.lineage(base), model.derived.get(base, ())
        calls = [usage for usage in callers(model, name) if usage.sure]
        own = {usage.call for usage in model.uses(f"{base}.{leaf(name)}") if usage.how == CALLED and usage.sure}
        for usage in calls:
            if leaf(name) == "__init__" and not (usage.call is not None and usage.call.double_star):
                continue  # built by its name
            owner, _, method = usage.place.rpartition(".")
            of_sibling = owner in siblings  # one that hands on with `super()`, or calls itself, does not call this
            of_base = own and usage.call not in own and owner not in family  # an object of a base class, elsewhere
            if not (owner in family and method in self._methods) and not of_sibling and not of_base:
                yield usage

    def _gets_there(self, usage: Usage, method: str, model: Model) -> bool:
        """Whether a call of the library is made on this class too: by the family itself, or on what a spec names."""
        (owner, _, caller), base = usage.place.rpartition("."), known_name(method.rpartition(".")[0], model)
        if owner in model.lineage(base):
            return True
        placed = any(is_holder(usage.place, slot) for slot in self._given.slots(self._family, [base], model)[0])
        return placed and not self._given.shuts_out(owner, caller)

    def _returned(self, name: str, before: list[Usage], now: list[Usage], new: Model) -> Iterator[Statement]:
        counts = given_counts(self._method)
        if not counts or 0 in counts:
            return
        then = {usage.call.unpacked for usage in before if usage.call is not None}
        for usage in now:
            wanted = usage.call.unpacked if usage.call is not None else 0
            fitted = bool(then) and not then.difference({0, *counts})
            if wanted and wanted not in counts and fitted and self._gets_there(usage, name, new):
                given = " or ".join(map(str, sorted(counts)))
                text = f"{self._shown} returns {given} values where `{short(usage.place)}` of megatron-core"
                yield self._said(RAISES, f"{text} {new.label} unpacks {wanted}", "ValueError", usage.place)
                return

    def _said(self, kind: str, text: str, exception: str = "", caller: str = "") -> Statement:
        return _told(kind, text, exception, self._home, self._method, caller)


def _told(
    kind: str, text: str, exception: str, home: Resolver, node: Function | ast.ClassDef, caller: str = ""
) -> Statement:
    trigger = f"when `{short(caller)}` calls it" if caller else ""
    return Statement(kind, text, exception, home.model.path, node.lineno, CALL, caller, trigger=trigger)


def _built(
    cls: ast.ClassDef, bases: list[str], home: Resolver, old: Model, new: Model, given: HandedOver
) -> Iterator[Statement]:
    """A class in a slot of a spec, whatever it derives from, whose constructor does not take what a release passes."""
    init = next((item for item in cls.body if isinstance(item, Function) and item.name == "__init__"), None)
    places, sure = given.slots(frozenset({cls.name}), bases, new)
    if init is None and not sure:
        return
    if not sure and not all(building(slot, new) for slot in places):
        return  # by what other call it is built is not known
    for some in [[slot] for slot in places] if sure else [places]:
        now = [usage for slot in some for usage in building(slot, new)]
        wrong = [(usage, _unbuildable(cls, init, bases, usage, new)) for usage in now]
        if not wrong or not all(text for _, text in wrong):
            continue
        if any(_unbuildable(cls, init, bases, usage, old) for slot in some for usage in building(slot, old)):
            continue  # as before
        usage, text = wrong[0]
        said = f"`{short(usage.place)}` of megatron-core {new.label} {text}"
        yield _told(RAISES, said, "TypeError", home, init or cls, usage.place)
        return


def _unbuildable(cls: ast.ClassDef, init: Function | None, bases: list[str], usage: Usage, model: Model) -> str:
    """Why a release cannot build a class with a call, as the end of a sentence; empty where it can, or nobody knows."""
    assert usage.call is not None
    inherited = next((taken for name in bases if (taken := model.called_with(name)) is not None), None)
    if init is None:
        wrong = inherited.misfit(usage.call) if inherited is not None and len(cls.bases) == 1 else ""
        return unfit(wrong, f"`{leaf(bases[0])}.__init__`") + f", the constructor of `{cls.name}`" if wrong else ""
    taken = taken_by(init)
    if taken is None:
        return ""
    if wrong := taken.misfit(usage.call):
        return unfit(wrong, f"`{cls.name}.__init__`")
    above = call_written(init, "super().__init__")
    handed_on = [getattr(word.value, "id", "") for word in getattr(above, "keywords", ()) if word.arg is None]
    if init.args.kwarg is None or inherited is None or init.args.kwarg.arg not in handed_on:
        return ""
    said = {node.value for node in ast.walk(init) if isinstance(node, ast.Constant)}
    more = tuple(name for name in usage.call.keywords if name not in taken.names and name not in said)
    wrong = inherited.misfit(Call(0, more, star=True, double_star=True))
    return unfit(wrong, f"`{leaf(bases[0])}.__init__`") + f", to which `{cls.name}` hands it on" if wrong else ""


def _abstract(
    cls: ast.ClassDef, own: set[str], before: str, now: str, old: Model, new: Model, home: Resolver
) -> Iterator[Statement]:
    """Abstract methods that a base class has now and had not: the class cannot be built any more."""
    family = new.lineage(known_name(now, new))
    names = {leaf_ for base in family for leaf_, fact in new.members(base) if fact.trait(_ABSTRACT) is not None}
    now_so = [name for name in sorted(names - own) if _is_abstract(f"{now}.{name}", new)]
    fresh = [name for name in now_so if not _is_abstract(f"{before}.{name}", old)]
    methods = (item for item in cls.body if isinstance(item, Function))
    by_itself = any("abstractmethod" in map(leaf_of, method.decorator_list) for method in methods)
    if fresh and not by_itself and len(cls.bases) == 1:
        verb, them = ("is", "it") if len(fresh) == 1 else ("are", "them")
        where = f"of `{leaf(now)}` {verb} abstract on megatron-core {new.label}"
        text = f"{quoted(fresh)} {where}, and `{cls.name}` lacks {them}"
        yield replace(_told(RAISES, text, "TypeError", home, cls), trigger=f"when a `{cls.name}` is built")


def _is_abstract(name: str, model: Model) -> bool:
    found = model.find(name)
    return found is not None and found.fact.trait(_ABSTRACT) is not None


def known_name(name: str, model: Model) -> str:
    """The name that a class is defined under."""
    found = model.find(name)
    return found.name if found is not None else name
