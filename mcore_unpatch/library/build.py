"""The one builder: a model of a library from its source, wherever that lies."""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.definitions import ModuleFacts
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import Library, Model
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.syntax import source_of, statements
from mcore_unpatch.library.usage import UseCollector

# What every installation has: Python's own modules, torch and what it depends on.
ALWAYS_THERE = frozenset({*sys.stdlib_module_names, "torch", "numpy", "packaging", "typing_extensions"})
_MOST_READERS = 4  # of a field, that are told
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}

SourceFile = tuple[str, bytes]  # a path below the folder that holds the top package, and its content


def build(library: Library, label: str, files: Iterable[SourceFile]) -> Model:
    """The model of a version; raises `UsageError` for a source that cannot be read whole."""
    collecting = gc.isenabled()
    gc.disable()  # a million nodes and no cycle among them: looking for cycles takes a third of the time
    try:
        return _build(library, label, files)
    finally:
        if collecting:
            gc.enable()


def _build(library: Library, label: str, files: Iterable[SourceFile]) -> Model:
    modules: dict[str, ModuleFacts] = {}
    for path, data in files:
        if library.holds(".".join(path.removesuffix(".py").removesuffix("/__init__").split("/"))):
            module = read_module(library, path, data)
            modules[module.name] = module
    if not modules:
        raise UsageError(f"This source holds no package {library.packages[0]}; pass a complete checkout or wheel.")
    facts: dict[str, Fact] = {}
    for module in modules.values():
        facts |= module.facts
    model = Model(library, label, facts, {})
    _resolve(facts, modules, model)
    model = Model(library, label, facts, {})
    for name, packages in _needs(library, modules).items():
        _mark(facts, name, f"needs:{','.join(sorted(packages))}")
    uses = UseCollector(model, Slots(modules.values()))
    for module in modules.values():
        uses.take(module)
    used = uses.result()
    for name, given in uses.given.items():
        known = model.find(name)
        defaults = known.fact.parameters.defaults if known is not None and known.fact.kind == "function" else {}
        for key, value in sorted(given):
            if known is not None and defaults.get(key, "") not in ("", value):
                _mark(facts, known.name, f"given:{key}={value}")
    _mark_unread(facts, modules, model, used, uses)
    return Model(library, label, facts, used)


def _mark(facts: dict[str, Fact], name: str, *words: str) -> None:
    if name in facts:
        facts[name] = replace(facts[name], traits=(*facts[name].traits, *words))


def read_module(library: Library, path: str, data: bytes) -> ModuleFacts:
    """The facts of one file; raises `UsageError`."""
    parts = path.removesuffix(".py").split("/")
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(data)
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}," if error.lineno else path
        wrong = f"{where} is not valid for Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}."
        way = "pass a complete source, or run this tool on a newer Python."
        raise UsageError(f"{wrong} Nothing was read; {way}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Nothing was read; pass a complete source.") from None
    return ModuleFacts(name, is_package, tree, library.top)


def _resolve(facts: dict[str, Fact], modules: Mapping[str, ModuleFacts], model: Model) -> None:
    """Traits name other definitions as they are written: put the dotted names in, where the library has them."""
    for module in modules.values():
        for name in module.facts:
            fact = facts[name]
            if any("@" in word for word in fact.traits):
                words = (_resolved(word, module.name, model) for word in fact.traits)
                facts[name] = replace(fact, traits=tuple(filter(None, words)))


def _resolved(word: str, module: str, model: Model) -> str:
    key, sep, texts = word.partition(":@")
    if not sep:
        return word
    resolved = []
    for text in texts.split("|"):
        known = model.find(f"{module}.{text}")
        kind = known.fact.kind if known is not None else ""
        wanted = kind == "class" or (key == "alias" and kind != "import")
        wanted = kind == "function" if key in ("picks", "whole") else wanted
        if known is not None and wanted:
            resolved.append(known.name)
    if key == "picks" and len(resolved) <= texts.count("|"):
        return ""  # not all of them are functions
    if key in ("several", "picks"):
        return f"{key}:{'|'.join(dict.fromkeys(resolved))}" if resolved else ""
    return f"{key}:{resolved[0]}" if len(resolved) == 1 else ""


def _mark_unread(
    facts: dict[str, Fact],
    modules: Mapping[str, ModuleFacts],
    model: Model,
    used: Mapping[str, object],
    uses: UseCollector,
) -> None:
    """Names of modules, and fields of dataclasses, that nothing of the library reads, or few do: other packages may."""
    imported = {fact.detail for fact in facts.values() if fact.kind == "import"}
    for module in modules.values():
        local = (node for body in module.functions for node in body.nodes.of(ast.ImportFrom))
        outer = (statement for statement in statements(module.tree.body) if isinstance(statement, ast.ImportFrom))
        for node in (*outer, *local):
            imported |= {f"{source_of(node, module.package)}.{alias.name}" for alias in node.names}
    imported |= {known.name for detail in imported if (known := model.find(detail))}
    starred = {name.removesuffix(".*") for name in imported if name.endswith(".*")}
    for name, fact in list(facts.items()):
        owner, _, leaf = name.rpartition(".")
        if owner in modules and name not in modules and fact.kind in ("function", "value", "import"):
            if name in used or name in imported or owner in starred or leaf in uses.loose or leaf in uses.texts:
                continue
            if not leaf.startswith("__") and leaf != "*":
                _mark(facts, name, "unread")
        elif fact.kind == "value" and leaf not in uses.texts and owner in facts:
            readers = uses.readers[leaf]
            others = readers - {owner} or readers
            if facts[owner].trait("dataclass") is not None and len(others) <= _MOST_READERS:
                _mark(facts, name, f"read:{'|'.join(sorted(others))}" if others else "unread")


def _needs(library: Library, modules: Mapping[str, ModuleFacts]) -> dict[str, frozenset[str]]:
    """The packages that each module needs, those included that the modules it imports need."""
    imported = {name: set(_always_imported(library, module, modules)) for name, module in modules.items()}
    top = f"{library.top}."  # the folder may be shared by several distributions
    needs: dict[str, set[str]] = {}
    for name, names in imported.items():
        outside = (other.split(".")[: 1 + other.startswith(top)] for other in names if not library.holds(other))
        needs[name] = set(map(".".join, outside)) - ALWAYS_THERE - {library.top}
    changed = True
    while changed:
        changed = False
        for name, names in imported.items():
            more = set().union(*(needs[other] for other in names if other in needs)) - needs[name]
            needs[name] |= more
            changed = changed or bool(more)
    # Without what the first package itself needs nothing of the library runs.
    always = needs.get(library.packages[0], set())
    return {name: frozenset(needed - always) for name, needed in needs.items() if needed - always}


def _always_imported(library: Library, module: ModuleFacts, modules: Mapping[str, ModuleFacts]) -> Iterator[str]:
    """What importing a module imports whatever happens: the packages around it, and its own unguarded imports."""
    yield from _around(library, module.name)
    for node in _unguarded(module.tree.body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            source = source_of(node, module.package)
            names = [source, *(name for alias in node.names if (name := f"{source}.{alias.name}") in modules)]
        for name in names:
            yield name
            yield from _around(library, name)


def _around(library: Library, module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        if library.holds(module):
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
    names = {ast.unparse(name).rpartition(".")[2] for name in caught if name is not None}
    return (not names or not names.isdisjoint(_CAUGHT)) and not isinstance(handler.body[-1], ast.Raise)
