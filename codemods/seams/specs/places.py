"""Where specs name a class of Megatron's: what its releases show of the class, and every place of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mcore_unpatch.codemods.syntax import imported, leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.makers import off_in
from mcore_unpatch.library.model import COMPARED, EXACT, Model
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron import api, known, slots
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS, FROM_SPECS
from mcore_unpatch.megatron.versions import Version, minor, parse_version

_SPECS = ("ModuleSpec", "Submodules")
# What makes models, and their specs, for others.
_BUILDERS = re.compile(
    r"(megatron\.(bridge|training\.models|post_training)|mbridge|mcore_bridge|nemo|(gpt|mamba|hybrid)_builders"
    r"|model_provider|pretrain_\w+)\b"
)
_MADE = re.compile(rb"_specs?\b|_submodules\b|_builder|model_provider|bridge|nemo|pretrain_|post_training")


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
        return f"it is not certain that Megatron builds `{short}` from specs alone and compares it with nothing"
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
    """The places of a repository that name a class, or call what makes specs with it.

    With `module`, only the name in that is another: it is what the functions of other modules do not ask.
    """

    bench: Workbench
    cls: str
    module: str = ""
    named: list[tuple[Source, ast.expr]] = field(default_factory=list)  # in specs of its own
    made: list[tuple[Source, ast.Call]] = field(default_factory=list)  # in those that Megatron makes

    @property
    def every(self) -> list[tuple[Source, ast.expr]]:
        """All of them."""
        return [*self.named, *self.made]

    def find_made(self, derived: Sequence[str]) -> Iterator[str]:
        """Look for calls of functions of Megatron's that make specs with the class; yields why not all are known."""
        short = leaf_of(self.cls)
        makers = [maker for maker in slots.makers() if short in slots.named_by(maker, frozenset())]
        leaves = {leaf_of(maker) for maker in makers}
        for source in self.bench.sources_saying(_MADE):
            names = imported(source)
            for full in names.values():
                if _BUILDERS.match(full) and self.bench.locate(source.path, full.partition(".")[0], 0) is None:
                    yield f"{source.path} imports `{full}`, which builds models and their specs itself"
            calls = {id(call.func): call for call in source.every(ast.Call)}
            for node, written, at in _mentions(source, names, leaves, "_spec"):
                symbol, where = api.lookup(at), f"{source.path}:{node.lineno}"
                if symbol is None and leaf_of(at) in {"", *leaves} and not _is_own(self.bench, source, at):
                    yield f"{where} names `{written}`, and not as Megatron's own: where it is called is not seen"
                if symbol is not None and symbol.kind not in ("function", "class", "module"):
                    yield f"{where} uses Megatron's `{written}`, a spec that may name `{short}`"
                if symbol is None or symbol.name not in makers:
                    continue
                call = calls.get(id(node))
                if call is None:
                    yield f"{where} names `{written}` without calling it"
                    continue
                off = off_in(call, known.parameter_names(symbol.name, api.union()) or ())
                parts = slots.named_by(symbol.name, off)
                if heir := next((one for one in derived if one in parts), ""):
                    yield f"`{written}` may name `{heir}`, which derives from `{short}` ({where})"
                if short in parts and self.module not in ("", symbol.name.rpartition(".")[0]):
                    yield f"`{written}` ({where}) may have `{short}` from another module"
                if short in parts:
                    self.made.append((source, call))

    def find_named(
        self, at: Source, gone: Sequence[ast.stmt], methods: Sequence[str], installer: ast.AST | None
    ) -> Iterator[str]:
        """Look for specs of the repository that name the class; yields other uses, in the way of a subclass.

        `gone` are the statements that go: what stands in them is not asked. What a patched method was is read before
        them, in the module or in the function that installs it.
        """
        short, first = leaf_of(self.cls), min(node.lineno for node in gone)
        for source in self.bench.sources_naming(short):
            for node, _, full in _mentions(source, imported(source), {short}):
                symbol, above = api.lookup(full), [*source.above(node)]
                if any(one in gone for one in above) or _is_annotation(source, node):
                    continue
                where = f"{source.path}:{node.lineno}"
                if self.module:
                    if full == f"{self.module}.{short}":
                        yield f"{where} asks `{self.module}` for `{short}`"
                    continue
                if symbol.name != self.cls if symbol else _is_own(self.bench, source, full):
                    continue
                use = _use(source, node, methods) if isinstance(node, ast.Name | ast.Attribute) else "names"
                late = any(isinstance(one, ast.Lambda) for one in above)
                before = source is at and node.lineno < first and source.function_of(node) in (None, installer)
                if use == "spec" and symbol is not None:
                    self.named.append((source, node))
                elif use and not (use == "backup" and before and not late):
                    yield f"{where} uses `{short}` in a way that a subclass may change"


def _is_annotation(source: Source, node: ast.AST) -> bool:
    """Whether an expression says what something is: nothing else comes of it."""
    for above in source.above(node):
        if node in (getattr(above, "annotation", None), getattr(above, "returns", None)):
            return True
        if isinstance(above, ast.stmt):
            return False
        node = above
    return False


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
            case ast.keyword() | ast.IfExp() | ast.Tuple() | ast.BinOp():
                below = above
            case _:
                return "other"
    return "other"


def _mentions(
    source: Source, names: dict[str, str], words: set[str], ending: str = " "
) -> Iterator[tuple[ast.expr, str, str]]:
    """The nodes that name one of some words, or what ends like that: what is written, and the dotted name behind it."""
    bound = {name: full for name, full in names.items() if leaf_of(full) in words or full.endswith(ending)}
    for node in source.every(ast.Name, ast.Attribute, ast.Constant):
        if isinstance(node, ast.Name) and (node.id in bound or node.id in words):
            yield node, node.id, bound.get(node.id, node.id)
        elif isinstance(node, ast.Attribute) and (node.attr in words or node.attr.endswith(ending)):
            head, _, rest = dotted(node).partition(".")
            yield node, node.attr, f"{names.get(head, head)}.{rest}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(rf"([\w.]+[.:])?({'|'.join(words)})", node.value):
                yield node, node.value, ""


def _is_own(bench: Workbench, source: Source, full: str) -> bool:
    """Whether a name is of the repository itself: defined in the file, or where that imports it from."""
    path = bench.locate(source.path, full.rpartition(".")[0], 0) if "." in full else source.path
    other = bench.readable(path) if path else None
    named = [getattr(node, "name", None) for node in other.tree.body] if other else []
    return leaf_of(full) in named


def leaf_of(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]
