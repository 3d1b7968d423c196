"""Names of Megatron that exist only where other packages are installed: `needs.json`, made with the history."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from mcore_unpatch.megatron.roots import ROOT, within

# What every installation has: Python's own modules, and what megatron-core and torch depend on.
ALWAYS_THERE = frozenset({*sys.stdlib_module_names, "torch", "numpy", "packaging", "typing_extensions"})
OPTIONAL = "optional"  # stands for a package where only a condition is known
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@cache
def _table() -> dict[str, dict[str, str]]:
    return json.loads(files("mcore_unpatch.megatron").joinpath("needs.json").read_bytes())  # type: ignore[no-any-return]


def needed(name: str, release: str) -> tuple[str, ...]:
    """The packages without which a release cannot import a dotted name."""
    while within(name):
        if known := _table().get(name):
            number = tuple(map(int, release.split(".")))
            since = [packages for first, packages in known.items() if tuple(map(int, first.split("."))) <= number]
            return tuple(since[-1].split()) if since else ()
        name = name.rpartition(".")[0]
    return ()


def merged(releases: Mapping[str, Mapping[str, frozenset[str]]]) -> dict[str, dict[str, str]]:
    """What `needs.json` holds: for each module the releases from which on it needs other packages than before."""
    found: dict[str, dict[str, str]] = {}
    for release, modules in releases.items():
        for module in sorted({*found, *modules}):
            packages = " ".join(sorted(modules.get(module, ())))
            known = found.get(module, {})
            if packages != (list(known.values())[-1] if known else ""):
                found.setdefault(module, {})[release] = packages
    return dict(sorted(found.items()))


def read(modules: Mapping[str, Path]) -> dict[str, frozenset[str]]:
    """The packages that each module needs, those included that the modules it imports need; and its optional names."""
    trees = {module: ast.parse(file.read_bytes()) for module, file in modules.items()}
    imported = {module: set(_imported(module, file, trees[module], modules)) for module, file in modules.items()}
    found = {
        module: {_distribution(name) for name in names if not within(name)} - ALWAYS_THERE - {"megatron"}
        for module, names in imported.items()
    }
    changed = True
    while changed:
        changed = False
        for module, names in imported.items():
            more = set().union(*(found[name] for name in names if name in found)) - found[module]
            found[module] |= more
            changed = changed or bool(more)
    for module, tree in trees.items():
        always, all_names = _bound(tree.body)
        found |= {f"{module}.{name}": {*found[module], OPTIONAL} for name in all_names - always}
    # Without what Megatron Core itself needs nothing of it runs.
    beyond = {name: frozenset(packages - found[ROOT]) for name, packages in found.items()}
    return {name: packages for name, packages in beyond.items() if packages}


def _imported(module: str, file: Path, tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    """What importing a module imports whatever happens: the packages around it, and its own unguarded imports."""
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    yield from _packages(module)
    for node in _unguarded(tree.body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
            names = [name for name in names if name == source or name in modules]
        for name in names:
            yield name
            yield from _packages(name)


def _distribution(name: str) -> str:
    """What has to be installed: `megatron` is a folder that several share."""
    return ".".join(name.split(".")[: 2 if name.startswith("megatron.") else 1])


def _packages(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        if within(module):
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
    names = {ast.unparse(one).rpartition(".")[2] for one in caught if one is not None}
    return (not names or not names.isdisjoint(_CAUGHT)) and not isinstance(handler.body[-1], ast.Raise)


def _bound(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """The names that statements bind whatever happens, and all that they may bind."""
    always: set[str] = set()
    every: set[str] = set()
    for node in body:
        ways: list[list[ast.stmt]] = []
        match node:
            case ast.If(body=then, orelse=orelse):
                ways = [then, orelse]
            case ast.Try(body=then, handlers=handlers, orelse=orelse, finalbody=last):
                ways = [[*then, *orelse, *last], *([*handler.body, *last] for handler in handlers)]
            case ast.With(body=then):
                ways = [then]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                always.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                always |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Assign() | ast.AnnAssign():
                always |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and _is_stored(one)}
        known = [_bound(way) for way in ways if not (way and isinstance(way[-1], ast.Raise))]
        always |= set.intersection(*(sure for sure, _ in known)) if known else set()
        every |= set().union(*(may for _, may in known))
    return always, always | every


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
