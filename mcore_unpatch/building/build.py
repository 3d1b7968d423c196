"""The one builder: what a library says of itself, from its source, wherever that lies."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping

from mcore_unpatch.building.defined import Defined, marked
from mcore_unpatch.building.notes import Notes
from mcore_unpatch.building.slots import SpecSlots
from mcore_unpatch.building.used import take_uses
from mcore_unpatch.code.index import dotted_name
from mcore_unpatch.code.module import Module
from mcore_unpatch.code.syntax import ALWAYS_THERE, last_name
from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.facts import Definition, Entry, Heart, Use
from mcore_unpatch.library.names import Listing, Namespace
from mcore_unpatch.library.packed import Packed

_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}

SourceFile = tuple[str, bytes]  # a path below the folder that holds the top package, and its content
Facts = dict[str, Definition]


def build(heart: Heart, label: str, files: Iterable[SourceFile]) -> Packed:
    """What a source says; raises `UsageError` where it cannot be read whole."""
    collecting = gc.isenabled()
    gc.disable()  # a million nodes: looking for cycles takes a third of the time
    try:
        facts, uses = _build(heart, files)
        return Packed.of(heart, label, facts.values(), uses)
    finally:
        if collecting:
            gc.enable()


def _names_of(heart: Heart, facts: Facts) -> Namespace:
    def entry(name: str) -> Entry | None:
        return found.entry if (found := facts.get(name)) is not None else None

    return Namespace(heart, Listing(), entry)


def _build(heart: Heart, files: Iterable[SourceFile]) -> tuple[Facts, dict[str, list[Use]]]:
    modules: dict[str, Defined] = {}
    for path, data in files:
        if heart.within(dotted_name(path)):
            modules[dotted_name(path)] = _read(heart, path, data)
    if not modules:
        raise UsageError(f"This source holds no package {heart.packages[0]}; pass a complete checkout or wheel.")
    facts: Facts = {}
    for module in modules.values():
        facts |= module.facts
    _resolve(facts, modules, _names_of(heart, facts))
    names = _names_of(heart, facts)
    for name, packages in _needs(heart, modules).items():
        facts[name] = marked(facts[name], f"needs:{','.join(sorted(packages))}")
    notes = Notes(names, modules.values(), SpecSlots(modules.values()))
    take_uses(notes, modules.values())
    uses = notes.uses()
    _mark_unread(facts, modules, names, uses, notes)
    return facts, uses


def definitions(heart: Heart, path: str, data: bytes) -> Facts:
    """What one file defines; raises `UsageError`."""
    return _read(heart, path, data).facts


def _read(heart: Heart, path: str, data: bytes) -> Defined:
    try:
        return Defined(Module(path, dotted_name(path), data), heart.top)
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}," if error.lineno else path
        wrong = f"{where} is not valid for Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}."
        way = "pass a complete source, or run this tool on a newer Python."
        raise UsageError(f"{wrong} Nothing was read; {way}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Nothing was read; pass a complete source.") from None


def _resolve(facts: Facts, modules: Mapping[str, Defined], names: Namespace) -> None:
    """Traits name other definitions as they are written: put the dotted names in, where the library has them."""
    for module in modules.values():
        for name in module.facts:
            entry = facts[name].entry
            if any("@" in word for word in entry.traits):
                words = (_resolved(word, module.name, names) for word in entry.traits)
                facts[name] = facts[name]._replace(entry=entry._replace(traits=tuple(filter(None, words))))


def _resolved(word: str, module: str, names: Namespace) -> str:
    key, sep, texts = word.partition(":@")
    if not sep:
        return word
    resolved = []
    for text in texts.split("|"):
        found = names.find(f"{module}.{text}")
        letter = found[1].letter if found is not None else ""
        wanted = letter == ("f" if key in ("picks", "whole") else "c") or (key == "alias" and letter not in ("", "i"))
        if found is not None and wanted:
            resolved.append(found[0])
    if key == "picks" and len(resolved) <= texts.count("|"):
        return ""  # not all of them are functions
    if key in ("several", "picks"):
        return f"{key}:{'|'.join(dict.fromkeys(resolved))}" if resolved else ""
    return f"{key}:{resolved[0]}" if len(resolved) == 1 else ""


def _mark_unread(
    facts: Facts,
    modules: Mapping[str, Defined],
    names: Namespace,
    uses: Mapping[str, object],
    notes: Notes,
) -> None:
    """Names of modules, and fields of dataclasses, that nothing of the library reads: other packages may."""
    imported = {one.entry.detail for one in facts.values() if one.letter == "i"}
    imported |= notes.imported
    imported |= {found[0] for detail in imported if (found := names.find(detail))}
    starred = {name.removesuffix(".*") for name in imported if name.endswith(".*")}
    for name, one in list(facts.items()):
        owner, _, leaf = name.rpartition(".")
        if owner in modules and name not in modules and one.letter in "fvi":
            is_read = name in uses or name in imported or owner in starred or leaf in notes.loose
            unread = not is_read and leaf not in notes.texts and not leaf.startswith("__") and leaf != "*"
        else:
            is_field = one.letter == "v" and owner in facts and facts[owner].entry.trait("dataclass") is not None
            unread = is_field and leaf not in notes.texts and leaf not in notes.read
        if unread:
            facts[name] = marked(one, "unread")


def _needs(heart: Heart, modules: Mapping[str, Defined]) -> dict[str, frozenset[str]]:
    """The packages that each module needs, those included that the modules it imports need."""
    imported = {name: set(_always_imported(heart, one.module, modules)) for name, one in modules.items()}
    top = f"{heart.top}."  # the folder may be shared by several distributions
    needs: dict[str, set[str]] = {}
    for name, names in imported.items():
        outside = (other.split(".")[: 1 + other.startswith(top)] for other in names if not heart.within(other))
        needs[name] = set(map(".".join, outside)) - ALWAYS_THERE - {heart.top}
    changed = True
    while changed:
        changed = False
        for name, names in imported.items():
            more = set().union(*(needs[other] for other in names if other in needs)) - needs[name]
            needs[name] |= more
            changed = changed or bool(more)
    # Without what the first package itself needs nothing of the library runs.
    always = needs.get(heart.packages[0], set())
    return {name: frozenset(needed - always) for name, needed in needs.items() if needed - always}


def _always_imported(heart: Heart, module: Module, modules: Mapping[str, object]) -> Iterator[str]:
    """What importing a module imports whatever happens: the packages around it, and its own unguarded imports."""
    yield from _around(heart, module.name)
    for node in _unguarded(module.tree.body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            source = module.absolute(node.module, node.level)
            names = [source, *(name for alias in node.names if (name := f"{source}.{alias.name}") in modules)]
        for name in names:
            yield name
            yield from _around(heart, name)


def _around(heart: Heart, module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        if heart.within(module):
            yield module


def _unguarded(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module that nothing asks for first, and whose failure nothing catches."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.Try() if not any(map(_forgives, node.handlers)):
                yield from _unguarded([*node.body, *node.orelse, *node.finalbody])
            case ast.Try():
                yield from _unguarded(node.finalbody)
            case ast.With() | ast.ClassDef():
                yield from _unguarded(node.body)


def _forgives(handler: ast.ExceptHandler) -> bool:
    """Whether a handler goes on where an import failed."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {last_name(name) for name in caught if name is not None}
    return (not names or not names.isdisjoint(_CAUGHT)) and not isinstance(handler.body[-1], ast.Raise)
