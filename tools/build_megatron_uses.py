"""Write `mcore_unpatch/megatron/uses.bin`: what Megatron's own code does with each of its names, and when each changed.

    python tools/build_megatron_uses.py           # the newest release of each minor one, fetched with pip

Run it after `build_megatron_history.py`, of which it takes the names.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from mcore_unpatch.megatron import api, history, lookup, uses
from mcore_unpatch.megatron.definitions import Definition, Function, Snapshot, module_files
from mcore_unpatch.megatron.mentions import EVERYTHING, Mentions, mentions, source_of
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.upgrade.sources import download

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "uses.bin"
Place = tuple[str, str, str]  # a module, a place in it, and what is done there
Find = Callable[[str], lookup.Found | None]
_SPECS = ("ModuleSpec", "Submodules", "partial")
_CONTAINERS = {"ModuleList", "ModuleDict", "Sequential"}
_CHECKS = {"isinstance", "issubclass", "cast"}


def main() -> None:
    """Fetch the releases, read them and write the file; the same bytes for the same releases."""
    newest = {release.rpartition(".")[0]: release for release in history.releases()}
    read = {minor: facts(download(release), history.names_of(release)) for minor, release in newest.items()}
    packed = uses.pack(read, changes(newest))
    OUTPUT.write_bytes(packed)
    print(f"{OUTPUT.name}: {len(packed)} bytes")


def changes(newest: Mapping[str, str]) -> dict[str, str]:
    """For each name a letter per minor release: absent, there, or changed since the one before."""
    snapshots = [history.snapshot(release) for release in newest.values()]
    found = {}
    for name in history.every_name():
        letters, before = "", None
        for snapshot in snapshots:
            seen = lookup.find(snapshot, name)
            letters += _letter(seen and seen.definition, before)
            before = seen.definition if seen else before
        found[name] = letters
    return found


def _letter(now: Definition | None, before: Definition | None) -> str:
    if now is None:
        return uses.ABSENT
    if not now.digest:
        return uses.BODILESS
    same = before is None or (now.digest, now.signature) == (before.digest, before.signature)
    return uses.SAME if same else uses.CHANGED


def facts(folder: Path, names: Snapshot) -> dict[str, str]:
    """What one release does with each name that some release has: the lines of `uses.bin`."""
    trees = dict(_trees(folder))
    users = defaultdict[str, set[Place]](set)
    found: dict[str, str] = {}
    said: dict[str, Mentions] = {}
    find = cache(partial(lookup.find, names))
    for module, (tree, package) in trees.items():
        said[module] = mentions(tree, package)
        walk = _Uses(module, package, find, users)
        walk.visit(tree)
        found |= walk.attributes
    _of_subclasses(names, users)
    is_read = _Readers(said)
    for name in history.every_name():
        owner, _, leaf = name.rpartition(".")
        if owner in trees and name not in trees and leaf != EVERYTHING:
            told = _told(owner, users.get(name, set()))
            if told:
                found[name] = told
            elif not is_read(owner, leaf) and not _is_kept_in_files(name):
                found[name] = uses.UNREAD
    return found


def _of_subclasses(names: Snapshot, users: dict[str, set[Place]]) -> None:
    """Who builds a class builds one of each of its bases."""
    for name in [name for name in users if (found := names.get(name)) and found.kind == "class"]:
        built = {(module, place, uses.DERIVED) for module, place, how in users[name] if how == uses.CALLED}
        for base in api.ancestry(name)[1:]:
            if base in names:
                users[base] |= built


def _trees(folder: Path) -> Iterator[tuple[str, tuple[ast.Module, str]]]:
    for module, file in module_files(folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(file.read_bytes())
        yield module, (tree, module if file.stem == "__init__" else module.rpartition(".")[0])


def _is_kept_in_files(name: str) -> bool:
    """A class may be named by what was pickled with an older release."""
    return any(one is not None and one.kind == "class" for _, one in history.versions_of(name))


def _told(owner: str, users: set[Place]) -> str:
    """How a name is used, in how many modules, and one place: `c3 MoELayer.__init__`."""
    if not users:
        return ""
    hows = "".join(how for how in uses.HOWS if any(use[2] == how for use in users))
    first = [use for use in users if use[2] == hows[0]]
    _, place, _ = min(first, key=lambda use: (use[0] != owner, use))
    return f"{hows}{len({module for module, *_ in first})} {place}"


class _Readers:
    """Whether some code of a release may read a name of a module."""

    def __init__(self, said: dict[str, Mentions]) -> None:
        self.said = said
        self.texts = set[str]().union(*(one.texts for one in said.values()))
        self.unknown = {name for one in said.values() for of, name in one.attributes if not of}
        self.imported = set[tuple[str, str]]().union(*(one.imported for one in said.values()))
        self.attributes = {
            (known.name if (known := api.lookup(of)) else of, name)
            for one in said.values()
            for of, name in one.attributes
        }
        self.values = {known.name if (known := api.lookup(of)) else of for one in said.values() for of in one.values}

    def __call__(self, module: str, name: str) -> bool:
        own = self.said[module]
        if name in own.names or name in own.texts:
            return True
        if not self.imported.isdisjoint({(module, name), (module, EVERYTHING)}):
            return True
        if not self.attributes.isdisjoint({(module, one) for one in (name, EVERYTHING, "__dict__", "__getattr__")}):
            return True
        # A module that is handed on, or that a text names, may be read by whoever gets it.
        handed_on = module in self.values or module.rpartition(".")[2] in self.texts
        return handed_on and (name in self.unknown or name in self.texts)


class _Uses(ast.NodeVisitor):
    """Who uses which name of a module in what way, and what the methods of a class put on `self`."""

    def __init__(self, module: str, package: str, find: Find, users: dict[str, set[Place]]) -> None:
        self.module, self.package, self.find, self.users = module, package, find, users
        self.attributes: dict[str, str] = {}
        self.around: list[str] = []  # classes and functions
        self.local: list[dict[str, str]] = []  # what functions bind, and where an import of theirs leads
        self.hows: dict[int, str] = {}
        self.owner = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self.hows[id(base)] = uses.BASE
            self.visit(base)
        for decorator in node.decorator_list:
            self.visit(decorator)
        outer, self.owner = self.owner, f"{self.module}.{node.name}" if not self.around else self.owner
        self.around.append(node.name)
        for child in node.body:
            self.visit(child)
        self.around.pop()
        self.owner = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.around.append(node.name)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.hows[id(default)] = uses.DEFAULT
            self.visit(default)
        self.around.pop()
        if self.owner and len(self.around) == 1:
            self._attributes(node)
        self.local.append(_locals(node, self.package))
        self.around.append(node.name)
        for child in node.body:
            self.visit(child)
        self.around.pop()
        self.local.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # what an annotation names is used for nothing
            if self.owner and len(self.around) == 1:
                self.hows[id(node.value)] = uses.DEFAULT  # of a field
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.hows[id(node.func)] = uses.CALLED
        called = (_dotted(node.func) or "").rpartition(".")[2]
        for given in (*node.args, *(word.value for word in node.keywords)):
            if called.endswith(_SPECS):
                self.hows.setdefault(id(given), uses.NAMED)
            elif called in _CHECKS:
                self.hows.setdefault(id(given), "")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._use(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if path := _dotted(node):
            self._use(node, path)
        else:
            self.visit(node.value)

    def _use(self, node: ast.Name | ast.Attribute, path: str) -> None:
        root, dot, rest = path.partition(".")
        start = next((names[root] for names in reversed(self.local) if root in names), f"{self.module}.{root}")
        if not isinstance(node.ctx, ast.Load) or not start:
            return
        whole = f"{start}{dot}{rest}"
        how = self.hows.get(id(node), uses.USED)
        used = {}
        for length in range(rest.count(".") + 1 if rest else 0, -1, -1):
            part = ".".join([start, *rest.split(".")[:length]]) if rest else start
            found = self.find(part) if within(part) else None
            if found and found.definition.kind != "module":
                used[found.name] = how if part == whole else uses.USED
                if length == 0:
                    used[start] = used[found.name]
        for name, way in used.items():
            if way and name != self.owner:  # a class that names itself tells nothing
                self.users[name].add((self.module, self._place(), way))

    def _place(self) -> str:
        """`Class.method`, or `module.function`."""
        is_class = len(self.around) > 1 and self.owner
        inside = self.around[: 2 if is_class else 1]
        return ".".join(inside if is_class else [self.module.rpartition(".")[2], *inside])

    def _attributes(self, method: Function) -> None:
        """Where what is put on `self` comes from: a class, the arguments, a spec."""
        given = {one.arg for one in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)}
        sources = defaultdict[str, set[str]](set)
        for node in ast.walk(method):
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    sources[name].add(_source(value, given))
                case ast.AnnAssign(
                    target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr() as value
                ):
                    sources[name].add(_source(value, given))
        for name, kinds in sources.items():
            kind = next((one for one in uses.SOURCES if one in kinds), "")
            if kind and (method.name == "__init__" or f"{self.owner}.{name}" not in self.attributes):
                self.attributes[f"{self.owner}.{name}"] = f"{kind} {method.name}"


def _source(value: ast.expr, given: set[str]) -> str:
    """What an attribute is made from; a spec and an argument go before a class that is built by name."""
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Name(id=name) if name in given:
            return uses.ARGUMENT
        case ast.IfExp(body=body, orelse=orelse):
            kinds = {_source(body, given), _source(orelse, given)} - {""}
            return next((one for one in uses.SOURCES if one in kinds), "")
        case ast.Call(func=function):
            path = _dotted(function) or ""
            root = path.partition(".")[0]
            if path.rpartition(".")[2] == "build_module" or "submodules" in path or "spec" in path.lower():
                return uses.SPEC
            leaf = path.rpartition(".")[2]
            named = root != "self" and root not in given and leaf[:1].isupper() and leaf not in _CONTAINERS
            return uses.BUILT if named else uses.MADE
    return uses.MADE


def _locals(function: Function, package: str) -> dict[str, str]:
    """What a function binds, the functions within left out: where an import leads, or nothing."""
    spec = function.args
    given = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    found = {one.arg: "" for one in given if one}
    open_nodes: list[ast.AST] = list(function.body)
    outer: set[str] = set()
    while open_nodes:
        node = open_nodes.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = ""
                continue
            case ast.Global(names=names):
                outer |= set(names)
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] = ""
            case ast.Import(names=aliases):
                found |= {one.asname: one.name for one in aliases if one.asname}
                found |= {top: top for one in aliases if not one.asname and (top := one.name.partition(".")[0])}
            case ast.ImportFrom(names=aliases):
                found |= {one.asname or one.name: f"{source_of(node, package)}.{one.name}" for one in aliases}
            case ast.Lambda():
                continue
        open_nodes += ast.iter_child_nodes(node)
    return {name: leads for name, leads in found.items() if name not in outer}


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else None


if __name__ == "__main__":
    main()
