"""Where specs name a class of Megatron's: what its releases show of the class, and every place of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mcore_unpatch.codemods.syntax import bound_by_import, identifiers, imported, leaf, module_of
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.library.makers import off_in
from mcore_unpatch.library.model import COMPARED, EXACT, Model
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron import api, known, slots
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS, FROM_SPECS
from mcore_unpatch.megatron.versions import Version, minor, parse_version, within

_SPECS = ("ModuleSpec", "Submodules")
# What makes models, and their specs, for others.
_BUILDERS = re.compile(
    r"(megatron\.bridge|megatron\.training\.models|mbridge|mcore_bridge|nemo|(gpt|mamba|hybrid)_builders|model_provider)\b"
)
_MADE = re.compile(rb"_specs?\b|_submodules\b|_builder|model_provider|bridge|nemo")


def releases_for(judged: Sequence[Version]) -> tuple[Model, ...]:
    """The newest of each minor release between the oldest and the newest that is judged for."""
    first, last = minor(judged[0]), minor(judged[-1])
    return tuple(one for one in known.minors() if first <= minor(parse_version(one.label)) <= last) or (
        known.newest(judged[-1]),
    )


def why_not(bench: Workbench, cls: str, methods: Sequence[str], releases: tuple[Model, ...]) -> str:
    """Why a subclass in the specs is not the same as a change of a class of Megatron's; empty where it is."""
    short = leaf_of(cls)
    if by_name := slots.built_by_name(cls, releases):
        return f"{by_name}, out of reach of a spec"
    if short not in FROM_SPECS:
        return f"that Megatron has `{short}` from specs alone, and compares it with nothing, is not known"
    if (word := FROM_SPECS[short]) and (told := bench.saying(re.compile(word.encode(), re.IGNORECASE))):
        return f"Megatron compares `{short}` itself where {told[0]} may lead ({word.replace('|', ', ')})"
    since, until, _ = COMPARED_IN_SPECS.get(short, ((), (), ""))
    for release in releases:
        name, here = known.name_on(release, cls), f"megatron-core {release.label}"
        if name not in release.facts or short not in slots.table((release,)):
            return f"no spec of {here} names `{short}`"
        compared = any(use.how == COMPARED for use in release.uses(name))
        if not word and (compared or since <= minor(parse_version(release.label)) <= until):
            return f"{here} compares `{short}` with what a spec names"
        for method in methods:
            found = release.find(f"{name}.{method}")
            if found is None or found.fact.kind != "function" or found.fact.trait("static") is not None:
                return f"`{short}.{method}` is no method in {here}"
            heirs = {name, *release.derived.get(name, ())}
            callers = (use.place.rpartition(".")[0] for use in release.uses(f"{name}.{method}") if use.how == EXACT)
            if method != "__init__" and (by := [one for one in callers if one not in heirs]):
                return f"`{leaf_of(by[0])}` calls `{short}.{method}` by name in {here}"
    return ""


@dataclass
class SpecPlaces:
    """The places of a repository that name a class, or call what makes specs with it."""

    cls: str
    named: list[tuple[Source, ast.expr]] = field(default_factory=list)  # in specs of its own
    made: list[tuple[Source, ast.Call]] = field(default_factory=list)  # in those that Megatron makes
    why_not: str = ""

    @property
    def every(self) -> list[tuple[Source, ast.expr]]:
        """All of them."""
        return [*self.named, *self.made]

    @property
    def short(self) -> str:
        """The name of the class."""
        return leaf_of(self.cls)


def find_makers(bench: Workbench, cls: str, derived: Sequence[str], module: str = "") -> SpecPlaces:
    """The calls of functions of Megatron's that make specs with a class, or why not all are known.

    With `module`, only functions of that are asked for: those of others have the class from elsewhere.
    """
    found, short = SpecPlaces(cls), leaf_of(cls)
    makers = [maker for maker in slots.makers() if short in slots.named_by(maker, frozenset())]
    leaves = {leaf_of(maker) for maker in makers}
    for source in bench.sources_saying(_MADE):
        names = imported(source)
        for name, full in names.items():
            if _BUILDERS.match(full) and bench.locate(source.path, full.partition(".")[0], 0) is None:
                found.why_not = f"{source.path} imports `{full}`, which builds models and their specs itself"
            symbol = api.lookup(full) if name.endswith("_spec") else None
            if symbol is not None and symbol.kind not in ("function", "class", "module"):
                found.why_not = f"{source.path} uses Megatron's `{name}`, a spec that may name it"
        calls = {id(call.func): call for call in source.every(ast.Call)}
        for node, written, at in _mentions(source, names, leaves):
            symbol = api.lookup(at)
            if symbol is None and not _is_own(bench, source, at, leaf(node)):
                found.why_not = f"{source.path}:{node.lineno} names `{written}`, which is not seen to be called"
            if symbol is None or symbol.name not in makers:
                continue
            call = calls.get(id(node))
            if call is None:
                found.why_not = f"{source.path}:{node.lineno} names `{written}` without calling it"
                break
            off = off_in(call, known.parameter_names(symbol.name, api.union()) or ())
            parts = slots.named_by(symbol.name, off)
            if heir := next((one for one in derived if one in parts), ""):
                found.why_not = (
                    f"`{written}` may name `{heir}`, which derives from `{short}` ({source.path}:{node.lineno})"
                )
            elif short in parts and module not in ("", symbol.name.rpartition(".")[0]):
                found.why_not = f"`{written}` ({source.path}:{node.lineno}) may have `{short}` from another module"
            elif short in parts:
                found.made.append((source, call))
        if found.why_not:
            break
    return found


def find_named(
    bench: Workbench, found: SpecPlaces, gone: Sequence[ast.stmt], methods: Sequence[str], installer: ast.AST | None
) -> None:
    """The specs of the repository that name a class, or why another use of it is in the way of a subclass.

    `gone` are the statements that go: what stands in them is not asked. What a patched method was is read before them,
    in the module or in the function that installs it.
    """
    first = min(node.lineno for node in gone)
    for source in bench.sources_naming(found.short):
        names = imported(source)
        for node, _, full in _mentions(source, names, {found.short}):
            symbol, above = api.lookup(full), [*source.above(node)]
            if symbol is None and _is_own(bench, source, full, found.short):
                continue
            if any(one in gone for one in above) or (symbol is not None and symbol.name != found.cls):
                continue
            home = source.home.get(id(gone[0]))
            use = _use(source, node, methods) if isinstance(node, ast.Name | ast.Attribute) else "names"
            if use == "spec" and isinstance(node, ast.expr) and symbol is not None:
                found.named.append((source, node))
            elif use and not (
                use == "backup" and home and node.lineno < first and source.function_of(node) in (None, installer)
            ):
                found.why_not = f"{source.path}:{node.lineno} uses `{found.short}` in a way that a subclass may change"
                return


def _use(source: Source, node: ast.expr, methods: Sequence[str]) -> str:
    """What code does with a class: `spec` names it in one, `backup` reads a method that is patched; empty: nothing."""
    below: ast.AST = node
    for above in source.above(node):
        match above:
            case ast.Attribute(attr=attr) if below is node:
                return "backup" if attr in methods else "" if isinstance(above.ctx, ast.Load) else "sets"
            case ast.Call(func=func) if below is not func:
                if leaf(func).endswith(_SPECS):
                    return "spec"
                asks = leaf(func) in ("isinstance", "issubclass") and below in above.args[1:]
                return "" if asks or (leaf(func) == "super" and below is above.args[0]) else "passes"
            case ast.arg() | ast.AnnAssign() if below is above.annotation:
                return ""
            case ast.FunctionDef() | ast.AsyncFunctionDef() if below is above.returns:
                return ""
            case ast.keyword() | ast.IfExp() | ast.Tuple() | ast.BinOp() | ast.Subscript():
                below = above
            case _:
                return "other"
    return "other"


def _mentions(source: Source, names: dict[str, str], words: set[str]) -> Iterator[tuple[ast.expr, str, str]]:
    """The nodes that name one of some words: each with what is written, and the dotted name of what that is."""
    bound = {name: full for name, full in names.items() if leaf_of(full) in words}
    for node in source.every(ast.Name, ast.Attribute, ast.Constant):
        if isinstance(node, ast.Name) and (node.id in bound or node.id in words):
            yield node, node.id, bound.get(node.id, node.id)
        elif isinstance(node, ast.Attribute) and node.attr in words:
            head, _, rest = dotted(node).partition(".")
            yield node, node.attr, f"{names.get(head, head)}.{rest}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(rf"([\w.]+[.:])?({'|'.join(words)})", node.value):
                yield node, node.value, ""


def _is_own(bench: Workbench, source: Source, full: str, word: str) -> bool:
    """Whether a name is of the repository itself: defined in the file, or where that imports it from."""
    if not full:
        return False
    path = bench.locate(source.path, full.rpartition(".")[0], 0) if "." in full else source.path
    other = bench.readable(path) if path else None
    kinds = (ast.ClassDef, ast.FunctionDef)
    return other is not None and any(isinstance(node, kinds) and node.name == word for node in other.tree.body)


def leaf_of(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def runs_late(source: Source, node: ast.AST) -> bool:
    """Whether a node runs when a function is called, and not when the file is imported: defaults do at once."""
    above = [node, *source.above(node)]
    return any(
        isinstance(outer, ast.Lambda) or (isinstance(outer, Function) and inner in outer.body)
        for inner, outer in pairwise(above)
    )


def imports_of(bench: Workbench, path: str) -> Iterator[tuple[Source, ast.Import | ast.ImportFrom]]:
    """The statements of other files that import a file."""
    stem = path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
    for source in bench.sources_naming(stem):
        for node in _imports(source):
            if path in _imported_by(bench, source, node) and source.path != path:
                yield source, node


def _imports(source: Source) -> list[ast.Import | ast.ImportFrom]:
    return [*source.every(ast.Import), *source.every(ast.ImportFrom)]


def _imported_by(bench: Workbench, source: Source, node: ast.Import | ast.ImportFrom) -> list[str | None]:
    """The files that a statement imports."""
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return [bench.locate(source.path, name, 0) for name in names]
    base = node.module or ""
    inside = [".".join(filter(None, (base, name))) for name in names]
    return [bench.locate(source.path, name, node.level) for name in (base, *inside)]


# --- files of the repository ------------------------------------------------------------------------------------


def module_for(bench: Workbench, path: str, importer: str) -> str:
    """What a file imports another as: as others do, else from the root of its package; empty where that is not it."""
    stem = path.removesuffix(".py").removesuffix("/__init__")
    parts = stem.split("/")
    for source in bench.sources_saying(parts[-1]):
        for node in source.every(ast.ImportFrom):
            if node.module and not node.level and bench.locate(source.path, node.module, 0) == path:
                if bench.locate(importer, node.module, 0) == path:
                    return node.module
    top = len(parts) - 1
    while top and bench.exists("/".join([*parts[:top], "__init__.py"])):
        top -= 1
    name = ".".join(parts[top:])
    return name if bench.locate(importer, name, 0) == path else ""


def imports_back(bench: Workbench, path: str, target: str) -> bool:
    """Whether a file imports another, itself or through others."""
    waiting, seen = [path], {path}
    while waiting:
        source = bench.readable(waiting.pop())
        imports = _imports(source) if source is not None else []
        for found in (found for node in imports for found in _imported_by(bench, source, node)):  # type: ignore[arg-type]
            if found == target:
                return True
            if found and found not in seen:
                seen.add(found)
                waiting.append(found)
    return False


def bound_to(source: Source, full: str, node: ast.AST) -> str:
    """The name under which a place of a file sees something of Megatron's; empty where it is not imported for it."""
    suites = {id(source.home[id(one)]) for one in source.above(node) if isinstance(one, ast.stmt)} | {
        id(source.tree.body)
    }
    for one in source.every(ast.ImportFrom):
        for alias in one.names if id(source.home[id(one)]) in suites else ():
            symbol = api.lookup(f"{module_of(source, one)}.{alias.name}") if within(module_of(source, one)) else None
            if symbol is not None and symbol.name == full:
                return bound_by_import(alias, one)
    return ""


def is_free(source: Source, name: str) -> bool:
    """Whether a file has no such name yet."""
    return name.encode() not in source.data or name not in identifiers(source.tree)
