"""Names of Megatron Core: where each is defined, what a class has, which attribute holds which module.

The table `names.json` is made from the released wheels by `tools/build_megatron_api.py`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from mcore_unpatch.megatron.layout import ATTRIBUTE_CLASSES, EXTERNAL_METHODS, GPT_MODEL, ITEM_CLASSES
from mcore_unpatch.megatron.roots import expand, shorten, within

_MODEL_PACKAGES = ("~.transformer.", "~.models.", "~.tensor_parallel.", "~.extensions.", "~.ssm.", "~.optimizer.")
_SPECIAL = {"__class__", "__bases__", "__code__", "__defaults__", "__kwdefaults__"}
_OF_EVERY_CLASS = frozenset(dir(object))
_NO_METHODS = {"__doc__", "__name__", "__qualname__", "__module__", "__dict__", "__annotations__", "__bases__"}


class Symbol(NamedTuple):
    """A name of Megatron Core: `kind` is module, class, function, value or state."""

    kind: str
    name: str


@cache
def _table() -> dict[str, Any]:
    return json.loads(files("mcore_unpatch.megatron").joinpath("names.json").read_bytes())  # type: ignore[no-any-return]


@cache
def releases() -> tuple[str, ...]:
    """The releases the tables were made from, oldest first."""
    return tuple(_table()["releases"])


def _module(name: str) -> dict[str, Any] | None:
    if not within(name):
        return None
    key = shorten(name)
    return _table()["modules"].get(key, {} if key in _packages() else None)  # type: ignore[no-any-return]


@cache
def _packages() -> frozenset[str]:
    """Every folder of Megatron Core, also those whose `__init__` defines nothing."""
    return frozenset(name.rpartition(".")[0] for name in _table()["modules"])


@cache
def _import_source(module: str, name: str) -> str | None:
    """Where `name`, imported into `module`, comes from."""
    facts = _module(module) or {}
    for source, names in facts.get("imports", {}).items():
        for word in names.split():
            bound, _, original = word.partition(":")
            if bound == name:
                return f"{expand(source)}.{original or bound}"
    return None


@cache
def lookup(name: str) -> Symbol | None:
    """The definition behind a dotted name, followed through Megatron's own re-exports."""
    if _module(name) is not None:
        return Symbol("module", name)
    owner, _, leaf = name.rpartition(".")
    facts = _module(owner)
    if facts is None:
        above = lookup(owner) if within(owner) else None
        if above and above.kind == "module" and above.name != owner:
            return lookup(f"{above.name}.{leaf}")
        if above and above.kind == "class":
            kind = "function" if has_callable(above.name, leaf) else "value"
            return Symbol(kind, f"{above.name}.{leaf}")
        return None
    if leaf in facts.get("classes", {}):
        return Symbol("class", name)
    if (source := _import_source(owner, leaf)) and source != name:
        return lookup(source)
    for kind, key in (("function", "functions"), ("state", "state"), ("value", "values")):
        if leaf in facts.get(key, "").split():
            return Symbol(kind, name)
    return None


def in_module(module: str, name: str) -> bool:
    """Whether `module` has `name` in some release, defined there or imported."""
    facts = _module(module) or {}
    return (
        name in facts.get("classes", {})
        or any(name in facts.get(key, "").split() for key in ("functions", "values"))
        or _import_source(module, name) is not None
        or _module(f"{module}.{name}") is not None
    )


def owner_in(module: str, method: str) -> str | None:
    """The one class of a module that defines a method."""
    classes = (_module(module) or {}).get("classes", {})
    owners = [name for name, facts in classes.items() if method in facts.get("methods", "").split()]
    return owners[0] if len(owners) == 1 else None


def is_state(module: str, name: str) -> bool:
    """Whether Megatron itself rebinds `module.name` with `global`."""
    return name in (_module(module) or {}).get("state", "").split()


def is_state_holder(module: str) -> bool:
    """Whether a module is mostly state, as `parallel_state` is."""
    return len((_module(module) or {}).get("state", "").split()) > 10


def _class(name: str) -> dict[str, Any] | None:
    owner, _, leaf = name.rpartition(".")
    return (_module(owner) or {}).get("classes", {}).get(leaf)  # type: ignore[no-any-return]


@cache
def ancestry(name: str) -> tuple[str, ...]:
    """A class and its bases, nearest first; bases outside Megatron Core as they are written."""
    seen: list[str] = []
    queue = [name]
    while queue:
        current = queue.pop(0)
        if current not in seen:
            seen.append(current)
            queue += [expand(base) for base in (_class(current) or {}).get("bases", [])]
    return tuple(seen)


@cache
def has_callable(name: str, attribute: str) -> bool:
    """Whether instances of class `name` have a method `attribute`, inherited ones included."""
    if attribute in _OF_EVERY_CLASS or (attribute.startswith("__") and is_module_class(name)):
        return attribute not in _NO_METHODS
    for ancestor in ancestry(name):
        facts = _class(ancestor)
        if facts is None:
            if attribute in EXTERNAL_METHODS.get(ancestor.rpartition(".")[2], ()):
                return True
        elif attribute in facts.get("methods", "").split():
            return True
    return False


@cache
def submodule(name: str, attribute: str) -> str | None:
    """The class held by `attribute` of class `name`: "" where only its existence is known, None where it is none."""
    for ancestor in ancestry(name):
        if found := ATTRIBUTE_CLASSES.get((ancestor, attribute)):
            return found
        found = (_class(ancestor) or {}).get("submodules", {}).get(attribute)
        if found is not None:
            return expand(found)
    return None


def holders(name: str) -> list[tuple[str, str]]:
    """The classes that build a class by name, and the attribute that holds it."""
    return [
        (f"{expand(module)}.{owner}", attribute)
        for module, facts in _table()["modules"].items()
        for owner, known in facts.get("classes", {}).items()
        for attribute, built in known.get("submodules", {}).items()
        if expand(built).endswith(f".{name.rpartition('.')[2]}") and _defined_as(expand(built)) == name
    ]


def _defined_as(name: str) -> str:
    found = lookup(name)
    return found.name if found is not None else name


@cache
def attribute_class(name: str, attribute: str) -> str | None:
    """The class that an annotation of Megatron's gives an attribute of class `name`; of a list, that of its items."""
    return next((expand(found) for facts in _lineage(name) if (found := facts.get("types", {}).get(attribute))), None)


@cache
def holds_function(name: str, attribute: str) -> bool:
    """Whether an attribute of class `name` is annotated as a function."""
    return any(attribute in facts.get("callables", "").split() for facts in _lineage(name))


@cache
def result_class(name: str) -> str | None:
    """The class of what a function or method returns, as its annotation says."""
    owner, _, leaf = name.rpartition(".")
    holders = [_module(owner) or {}, *_lineage(owner)]
    return next((expand(found) for facts in holders if (found := facts.get("returns", {}).get(leaf))), None)


def _lineage(name: str) -> list[dict[str, Any]]:
    """The facts of a class and of its bases, nearest first."""
    return [facts for ancestor in ancestry(name) if (facts := _class(ancestor)) is not None]


@cache
def item_class(name: str, attribute: str) -> str | None:
    """The class of the items of a list of modules, such as `layers` of a transformer block."""
    for ancestor in ancestry(name):
        if found := ITEM_CLASSES.get((ancestor, attribute)):
            return found
    return None


@cache
def is_module_class(name: str) -> bool:
    """Whether a class is a `torch.nn.Module`; Transformer Engine's layers are."""
    parts = (ancestor.rpartition(".") for ancestor in ancestry(name))
    return any(leaf in {"Module", "MegatronModule"} or package == "te.pytorch" for package, _, leaf in parts)


@cache
def is_model(name: str) -> bool:
    """Whether a class is a whole language model or wraps one."""
    return name == GPT_MODEL or any(a.endswith(("LanguageModule", "DistributedDataParallel")) for a in ancestry(name))


@cache
def _method_owners() -> dict[str, str]:
    """Method names that one family of Megatron's classes has and neither torch nor Python does."""
    owners: dict[str, list[str]] = {}
    for module, facts in _table()["modules"].items():
        for name, members in facts.get("classes", {}).items():
            if not module.startswith(_MODEL_PACKAGES):
                continue
            for method in members.get("methods", "").split():
                owners.setdefault(method, []).append(f"{expand(module)}.{name}")
    foreign = _foreign_methods()
    unique = {}
    for method, classes in owners.items():
        root = next((c for c in classes if all(c in ancestry(other) for other in classes)), None)
        if root and not method.startswith("__") and method not in foreign:
            unique[method] = root
    return unique


@cache
def _classes_by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, facts in _table()["modules"].items():
        for name in facts.get("classes", ()):
            found.setdefault(name, []).append(f"{expand(module)}.{name}")
    return found


def classes(name: str) -> list[str]:
    """Every class of that name."""
    return _classes_by_name().get(name, [])


def class_named(name: str) -> str | None:
    """The one class of that name, where no other has it."""
    found = classes(name)
    return found[0] if len(found) == 1 else None


def unique_method_owner(name: str) -> str | None:
    """The class whose method `name` is, where no other family of classes has one of that name."""
    return _method_owners().get(name)


@cache
def telling_methods() -> frozenset[str]:
    """Methods of Megatron's classes that torch's do not have."""
    classes = (members for facts in _table()["modules"].values() for members in facts.get("classes", {}).values())
    return frozenset().union(*(members.get("methods", "").split() for members in classes)) - _foreign_methods()


def _foreign_methods() -> frozenset[str]:
    return frozenset().union(*EXTERNAL_METHODS.values())


@cache
def _any_method_owners() -> dict[str, str]:
    foreign = _foreign_methods()
    found: dict[str, str] = {}
    for module, facts in _table()["modules"].items():
        for name, members in facts.get("classes", {}).items() if module.startswith(_MODEL_PACKAGES) else ():
            for method in members.get("methods", "").split():
                if not method.startswith("__") and method not in foreign:
                    found.setdefault(method, f"{expand(module)}.{name}")
    return found


def method_owner(name: str) -> str | None:
    """A class of Megatron's models that has a method `name`, where torch's modules have none."""
    return unique_method_owner(name) or _any_method_owners().get(name)


@cache
def attribute_names() -> frozenset[str]:
    """Every name that a patch could replace: methods, submodules, and what modules define."""
    names: set[str] = set().union(*EXTERNAL_METHODS.values())
    for facts in _table()["modules"].values():
        names.update(facts.get("functions", "").split(), facts.get("values", "").split(), facts.get("classes", ()))
        for source in facts.get("imports", {}).values():
            names.update(word.partition(":")[0] for word in source.split())
        for members in facts.get("classes", {}).values():
            names.update(members.get("methods", "").split(), members.get("submodules", ()))
            names.update(members.get("callables", "").split())
    return frozenset(names | {attribute for _, attribute in (*ATTRIBUTE_CLASSES, *ITEM_CLASSES)} | _SPECIAL)


@cache
def _definers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, facts in _table()["modules"].items():
        words = f"{facts.get('functions', '')} {facts.get('values', '')}".split()
        for name in (*words, *facts.get("classes", ())):
            found.setdefault(name, []).append(expand(module))
    return found


def definers(name: str) -> list[str]:
    """The modules that define `name`."""
    return _definers().get(name, [])


def defining_module(name: str) -> str | None:
    """The one module that defines `name`, where no other does."""
    modules = definers(name)
    return modules[0] if len(modules) == 1 else None
