"""Names of Megatron Core, whatever the release: where each is defined, what a class has, which attribute holds what.

Of what releases say differently the newest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import ATTRIBUTE_CLASSES, EXTERNAL_METHODS, GPT_MODEL, RESULTS
from mcore_unpatch.megatron.versions import ITEM_CLASSES, RELEASES, ROOT, within

_OF_MODELS = "transformer models tensor_parallel extensions ssm optimizer"
_MODEL_PACKAGES = tuple(f"{ROOT}.{package}." for package in _OF_MODELS.split())
_DEEPEST = 30  # parts of a name
_SPECIAL = {"__class__", "__bases__", "__code__", "__defaults__", "__kwdefaults__"}
_OF_EVERY_CLASS = frozenset(dir(object))
_NO_METHODS = {"__doc__", "__name__", "__qualname__", "__module__", "__dict__", "__annotations__", "__bases__"}


class Symbol(NamedTuple):
    """A name of Megatron Core: `kind` is module, class, function, value or state."""

    kind: str
    name: str


@cache
def union() -> Model:
    """All releases as one."""
    return known.atlas().union()


@cache
def _kinds() -> dict[str, str]:
    """Each name that some release has, and what kind of thing it was last: a letter, as the packed file writes it."""
    kinds = {}
    for name, line in known.atlas().lines.items():
        part = line.rpartition("\x1e")[2]
        if part.endswith("-"):
            part = line.rsplit("\x1e", 2)[-2]
        kinds[name] = part.partition("\x1f")[0][-1]
    return kinds


def _of_kind(names: Iterable[str], letters: str, of: str) -> list[str]:
    """Those of some names that are of a kind, and that a module (`m`) or a class (`c`) binds."""
    kinds = _kinds()
    return [name for name in names if kinds[name] in letters and kinds.get(name.rpartition(".")[0]) == of]


def _fact(name: str) -> Fact | None:
    return union().facts.get(name) if within(name) else None


@cache
def lookup(name: str) -> Symbol | None:
    """The definition behind a dotted name, followed through Megatron's own re-exports."""
    if not within(name) or name.count(".") > _DEEPEST:
        return None
    found = union().find(name)
    if found is None:
        owner, _, leaf = name.rpartition(".")
        above = lookup(owner)
        if above is None or above.kind != "class":
            return None
        return Symbol("function" if has_callable(above.name, leaf) else "value", f"{above.name}.{leaf}")
    kind = found.fact.kind
    owner, _, leaf = found.name.rpartition(".")
    holder = _fact(owner)
    if holder is not None and holder.kind == "class" and kind != "class":
        asked, _, _ = name.rpartition(".")
        above = lookup(asked)
        place = above.name if above is not None and above.kind == "class" else owner
        return Symbol("function" if has_callable(place, leaf) else "value", f"{place}.{leaf}")
    if kind == "value" and found.fact.trait("state") is not None:
        return Symbol("state", found.name)
    return Symbol("value" if kind in ("import", "attribute") else kind, found.name)


def is_module(name: str, shape: str) -> bool:
    """Whether a patch of that shape is of a whole module: a function of the package may have its name."""
    found = lookup(name) if shape in ("source-rewrite", "sys-modules") else None
    return found is not None and found.kind == "module"


def in_module(module: str, name: str) -> bool:
    """Whether `module` has `name` in some release, defined there or imported."""
    holder = _fact(module)
    return holder is not None and holder.kind == "module" and _fact(f"{module}.{name}") is not None


def owner_in(module: str, method: str) -> str | None:
    """The one class of a module that defines a method."""
    classes = _of_kind(known.atlas().names.within(module), "c", "m")
    owners = [name.rpartition(".")[2] for name in classes if _kinds().get(f"{name}.{method}") == "f"]
    return owners[0] if len(owners) == 1 else None


def is_state(module: str, name: str) -> bool:
    """Whether Megatron itself rebinds `module.name` with `global`."""
    fact = _fact(f"{module}.{name}")
    return fact is not None and fact.trait("state") is not None


@cache
def is_state_holder(module: str) -> bool:
    """Whether a module is mostly state, as `parallel_state` is."""
    values = _of_kind(known.atlas().names.within(module), "v", "m")
    return sum(is_state(*name.rsplit(".", 1)) for name in values) > 10


def ancestry(name: str) -> tuple[str, ...]:
    """A class and its bases, nearest first; bases outside Megatron Core as they are written."""
    return union().lineage(name)


def defines(target: str) -> bool:
    """Whether a class or module has a name of its own in some release, not only by inheritance."""
    return _fact(target) is not None


@cache
def has_callable(name: str, attribute: str) -> bool:
    """Whether instances of class `name` have a method `attribute`, inherited ones included."""
    if attribute in _OF_EVERY_CLASS or (attribute.startswith("__") and is_module_class(name)):
        return attribute not in _NO_METHODS
    for ancestor in ancestry(name):
        if not within(ancestor):
            if attribute in EXTERNAL_METHODS.get(ancestor.rpartition(".")[2], ()):
                return True
        elif (fact := _fact(f"{ancestor}.{attribute}")) is not None and fact.kind == "function":
            return True
    return False


def _versions(name: str) -> Iterator[Fact]:
    """What releases say of a name, the newest first: a trait may be told by an older one alone."""
    entries = known.atlas().entries(name) if within(name) else ()
    return (fact for _, fact in reversed(entries) if fact is not None)


def _traits(name: str, attribute: str) -> Iterator[Fact]:
    """What a class and its bases, nearest first, say of an attribute."""
    return (fact for ancestor in ancestry(name) for fact in _versions(f"{ancestor}.{attribute}"))


@cache
def submodule(name: str, attribute: str) -> str | None:
    """The class held by `attribute` of class `name`: "" where only its existence is known, None where it is none."""
    for ancestor in ancestry(name):
        if held := ATTRIBUTE_CLASSES.get((ancestor, attribute)):
            return held
        for fact in _versions(f"{ancestor}.{attribute}"):
            if (built := fact.trait("builds")) is not None:
                return built
            if fact.trait("slot"):
                return ""
    return None


@cache
def is_transient(name: str, attribute: str) -> bool:
    """Whether an attribute holds what a method makes while it works: no module, and not built with the object."""
    facts = [fact for ancestor in ancestry(name) for fact in _versions(f"{ancestor}.{attribute}")]
    built = [(fact.trait("builds") or "", (fact.trait("from") or "").removeprefix("built:")) for fact in facts]
    return bool(built) and all(within(cls) and not is_module_class(cls) and by != "__init__" for cls, by in built)


@cache
def _built() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, letter in _kinds().items():
        if letter in "av" and "builds:" in known.atlas().lines[name]:
            owner, _, leaf = name.rpartition(".")
            for built in dict.fromkeys(fact.trait("builds") for fact in _versions(name)):
                if built:
                    found.setdefault(built, []).append((owner, leaf))
    return found


def holders(name: str) -> list[tuple[str, str]]:
    """The classes that build a class by name, and the attribute that holds it."""
    return _built().get(name, [])


@cache
def attribute_class(name: str, attribute: str) -> str | None:
    """The class that an annotation of Megatron's gives an attribute of class `name`; of a list, that of its items."""
    facts = (fact for fact in _traits(name, attribute) if fact.kind != "function")
    return next((held for fact in facts if fact.trait("builds") is None and (held := fact.trait("type"))), None)


@cache
def holds_function(name: str, attribute: str) -> bool:
    """Whether an attribute of class `name` is annotated as a function."""
    return any(fact.trait("callable") is not None for fact in _traits(name, attribute))


@cache
def result_class(name: str) -> str | None:
    """The class of what a function or method returns, as its annotation says."""
    if name in RESULTS:
        return RESULTS[name]
    owner, _, leaf = name.rpartition(".")
    facts = [fact for fact in (*_versions(name), *_traits(owner, leaf)) if fact.kind == "function"]
    return next((held for fact in facts if (held := fact.trait("type"))), None)


@cache
def item_class(name: str, attribute: str) -> str | None:
    """The class of the items of a list of modules, such as `layers` of a transformer block."""
    items = (ITEM_CLASSES.get((ancestor, attribute)) for ancestor in ancestry(name))
    return next(filter(None, items), None)


@cache
def is_module_class(name: str) -> bool:
    """Whether a class is a `torch.nn.Module`; Transformer Engine's layers are."""
    parts = (ancestor.rpartition(".") for ancestor in ancestry(name))
    return any(leaf in {"Module", "MegatronModule"} or package.endswith("te.pytorch") for package, _, leaf in parts)


@cache
def is_model(name: str) -> bool:
    """Whether a class is a whole language model or wraps one."""
    return name == GPT_MODEL or any(a.endswith(("LanguageModule", "DistributedDataParallel")) for a in ancestry(name))


def _owners_in_models(method: str) -> list[str]:
    if method.startswith("__") or method in _foreign_methods():
        return []
    methods = _of_kind(known.atlas().names.ending(method), "f", "c")
    return [name.rpartition(".")[0] for name in methods if name.startswith(_MODEL_PACKAGES)]


@cache
def unique_method_owner(name: str) -> str | None:
    """The class whose method `name` is, where no other family of classes has one of that name."""
    owners = _owners_in_models(name)
    return next((owner for owner in owners if all(owner in ancestry(other) for other in owners)), None)


def method_owner(name: str) -> str | None:
    """A class of Megatron's models that has a method `name`, where torch's modules have none.

    Where objects hold something by that name as well, one whose objects do: they are patched more often.
    """
    owners = _owners_in_models(name)
    held = _of_kind(known.atlas().names.ending(name), "a", "c") if owners else []
    if inside := next((owner for owner in held if owner.startswith(_MODEL_PACKAGES)), ""):
        return inside.rpartition(".")[0]
    there = (owner for owner in owners if known.has(f"{owner}.{name}", RELEASES[-1]))
    return unique_method_owner(name) or next(there, next(iter(owners), None))


@cache
def telling_methods() -> frozenset[str]:
    """Methods of Megatron's classes that torch's do not have."""
    return frozenset(name.rpartition(".")[2] for name in _of_kind(_kinds(), "f", "c")) - _foreign_methods()


@cache
def _foreign_methods() -> frozenset[str]:
    return frozenset().union(*EXTERNAL_METHODS.values())


def classes(name: str) -> list[str]:
    """Every class of that name."""
    return _of_kind(known.atlas().names.ending(name), "c", "m")


def class_named(name: str) -> str | None:
    """The one class of that name, where no other has it."""
    found = classes(name)
    return found[0] if len(found) == 1 else None


def members(name: str) -> set[str]:
    """What a class has of its own in some release."""
    return {member.rpartition(".")[2] for member in known.atlas().names.within(name)}


@cache
def attribute_names() -> frozenset[str]:
    """Every name that a patch could replace: methods, submodules, and what modules define."""
    kinds = _kinds()
    names: set[str] = set().union(*EXTERNAL_METHODS.values())
    for name, letter in kinds.items():
        owner, _, leaf = name.rpartition(".")
        line = known.atlas().lines[name] if letter in "av" else ""
        if letter == "f" or kinds.get(owner) == "m" or "builds" in line or "slot:" in line or "callable" in line:
            names.add(leaf)
    return frozenset(names | {attribute for _, attribute in (*ATTRIBUTE_CLASSES, *ITEM_CLASSES)} | _SPECIAL)


def defining_module(name: str, newest: bool = False) -> str | None:
    """The one module that defines `name`, where no other does; with `newest`, in the last release that has it."""
    defined = _of_kind(known.atlas().names.ending(name), "fvc", "m")
    if newest:
        ends = {module: RELEASES.index(known.last(module) or RELEASES[0]) for module in defined}
        defined = [module for module in defined if ends[module] == max(ends.values())]
    return defined[0].rpartition(".")[0] if len(defined) == 1 else None
