"""Patches made through a call: which kind of installer is it?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.megatron.versions import within
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.names.strings import elements, string, strings
from mcore_unpatch.scanner.shapes import helpers, registries, source_rewrites
from mcore_unpatch.scanner.shapes.assignments import (
    fields_of,
    from_setattr,
    is_setattr,
    namespace,
    set_by_name,
    whole_modules,
)
from mcore_unpatch.scanner.shapes.install import Install, core_target, parted
from mcore_unpatch.scanner.sources.prefilter import plain
from mcore_unpatch.scanner.sources.scopes import Site, last_name, path_text

_SETATTR = {"setattr", "builtins.setattr"}
_CHILDREN = {"add_module", "register_module", "set_submodule"}
_STEPS = 3  # names that stand for names

_MOCKERS = re.compile(
    r"(?:^|\.)(?:mock|mocker)\.patch(?:\.|$)|^patch(?:\.|$)|(?:^|\.)monkeypatch\.|^mp\.set(?:attr|item)$"
)
_IN_PROGRAMS = re.compile(r"^(?!mocker\.)(?:\w+\.)*patch(?:\.|$)")  # pytest's own work in tests alone


def from_call(site: Site, resolver: Resolver, tests: bool) -> list[Install]:
    """The patches one call makes; `tests`: also the mocks that test something."""
    call = site.call
    text = resolver.at(site).text(call.func)
    if is_mock(text, site, resolver):
        return from_mock(site, resolver, text) if tests or not is_of_a_test(text, site, resolver) else []
    if is_setattr(call):
        if helpers.is_parametric(site, resolver):
            return []
        found = from_setattr(site, resolver)
        computed = all(install.attribute == "*" for install in found)  # a table may tell which names
        return (helpers.from_rows(site, site, resolver, {}) if computed else []) or found
    written = [replace(site, node=call) for call in _setattrs(site, resolver)]
    if installs := [install for site in written for install in from_setattr(site, resolver)]:
        for install in installs:
            install.node = call
        return installs
    return next((installs for shape in _SHAPES if (installs := shape(site, resolver))), [])


def _from_namespace_update(site: Site, resolver: Resolver) -> list[Install]:
    """`module.__dict__.update(name=fn)`, `sys.modules.update({...})`, `operator.setitem(sys.modules, name, fake)`."""
    call = site.call
    if len(call.args) == 3 and resolver.at(site).text(call.func) == "operator.setitem":
        method = ast.copy_location(ast.Attribute(call.args[0], "__setitem__", ast.Load()), call)
        written = ast.copy_location(ast.Call(method, call.args[1:], []), call)
        return _from_namespace_update(replace(site, node=written), resolver)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"update", "setdefault", "__setitem__"}:
        return []
    entries: list[tuple[str, ast.expr]] = [(k.arg, k.value) for k in call.keywords if k.arg]
    if call.args and isinstance(call.args[0], ast.Dict):
        entries += [(str(getattr(k, "value", "")), v) for k, v in registries.pairs(call.args[0])]
    elif call.func.attr != "update" and len(call.args) == 2:
        entries += [(n, call.args[1]) for n in strings(call.args[0], resolver.at(site))]
    if resolver.at(site).text(call.func.value) == "sys.modules":
        return whole_modules(site, [key for key, _ in entries], entries[0][1]) if entries else []
    held = resolver.at(site).expr(call.func.value)
    if held is not None and held.kind == "fields":
        return fields_of(site, held, [name for name, _ in entries], call)
    holder, base = namespace(call.func.value, site, resolver)
    if holder is None or base is None or not base.is_core:
        return []
    installs = [i for name, value in entries for i in set_by_name(site, resolver, holder, base, [name], value)]
    for install in installs:
        install.shape = "sys-modules" if base.kind == "module" else "instance-attr"
    return installs


# What a call can be, the most telling first.
_SHAPES = (
    registries.from_register_call,
    registries.from_table_method,
    _from_namespace_update,
    source_rewrites.from_exec,
    source_rewrites.from_finder,
    helpers.from_helper_call,
    registries.from_patcher,
)


def _setattrs(site: Site, resolver: Resolver) -> Iterator[ast.Call]:
    """The calls `setattr(object, name, value)` that a call amounts to, where it is written otherwise."""
    call, at = site.call, resolver.at(site)
    func, args = call.func, call.args
    if isinstance(func, ast.Attribute) and func.attr in _CHILDREN:
        yield from _child(call, func.value)
    elif isinstance(func, ast.Attribute) and func.attr == "__setattr__" and len(args) in {2, 3}:
        yield _setattr(call, [func.value, *args][-3:])
    elif b"setattr" not in plain(resolver.model.data):
        return  # nothing here stands for it: what calls are looked into is told by the same word
    elif last_name(func) in {"starmap", "map"} and args and _means_setattr(args[0], at):
        yield from (_setattr(call, row) for row in _rows(call, at))
    elif (given := _given(func, at)) is not None:
        yield _setattr(call, [*given, *(part for arg in args for part in _unpacked(arg, at))])
    else:
        yield from _handed_over(call, at)


def _unpacked(node: ast.expr, at: Position) -> list[ast.expr]:
    """The parts of `setattr(*row)`."""
    if not isinstance(node, ast.Starred):
        return [node]
    parts = [ast.Subscript(node.value, ast.Constant(number), ast.Load()) for number in range(3)]
    return _nodes(node.value, at) or [ast.copy_location(part, node) for part in parts]


def _handed_over(call: ast.Call, position: Position) -> Iterator[ast.Call]:
    """`atexit.register(setattr, GPTModel, "forward", f)`, `Thread(target=setattr, args=(GPTModel, "forward", f))`."""
    at = next((n for n, arg in enumerate(call.args) if _means_setattr(arg, position)), None)
    if at is not None and len(call.args) == at + 4:
        yield _setattr(call, call.args[at + 1 :])
    if any(_means_setattr(keyword.value, position) for keyword in call.keywords):
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Tuple | ast.List) and len(keyword.value.elts) == 3:
                yield _setattr(call, keyword.value.elts)


def _setattr(call: ast.Call, arguments: list[ast.expr]) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name("setattr", ast.Load()), arguments, []), call)


def _child(call: ast.Call, owner: ast.expr) -> Iterator[ast.Call]:
    """`model.set_submodule("decoder.final_layernorm", new)`."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    words = [named[word] for word in ("name", "target", "module") if word in named]
    match [*call.args, *words]:
        case [ast.Constant(value=str(dotted)) as path, value, *_]:
            *parents, name = dotted.split(".")
            for parent in parents:
                owner = ast.copy_location(ast.Attribute(owner, parent, ast.Load()), call)
            yield _setattr(call, [owner, ast.copy_location(ast.Constant(name), path), value])


def _given(func: ast.expr, at: Position, steps: int = _STEPS) -> list[ast.expr] | None:
    """What `setattr` is given before the call, if `func` stands for it: nothing, or the arguments of a `partial`."""
    if at.text(func) in _SETATTR:
        return []
    match func:
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="builtins"), ast.Constant(value="setattr")]):
            return []
        case ast.Subscript(value=ast.Name(id="__builtins__"), slice=ast.Constant(value="setattr")):
            return []
    if isinstance(func, ast.Call) and func.args and at.text(func.func).rpartition(".")[2] == "partial":
        inner = _given(func.args[0], at, steps)
        return None if inner is None or func.keywords else [*inner, *func.args[1:]]
    if isinstance(func, ast.Name) and steps:
        values = [binding.node for binding in at.scope.bindings_of(func.id) if binding.kind == "value"]
        return _given(values[-1], at, steps - 1) if values and isinstance(values[-1], ast.expr) else None
    return None


def _means_setattr(node: ast.expr, at: Position) -> bool:
    return _given(node, at) == []


def _rows(call: ast.Call, at: Position) -> Iterator[list[ast.expr]]:
    """What `starmap` takes row by row and `map` column by column, where it is written out."""
    tables = [_nodes(table, at) for table in call.args[1:]]
    is_map = last_name(call.func) == "map"
    rows = [list(row) for row in zip(*tables, strict=False)] if is_map else [_nodes(row, at) for row in tables[0]]
    yield from (row for row in rows if len(row) == 3)


def _nodes(table: ast.expr, at: Position) -> list[ast.expr]:
    return [element.node for element in elements(table, at)]


def is_mock(text: str, site: Site, resolver: Resolver) -> bool:
    """Whether a call, written as `text`, is one of a mocking library."""
    if text.endswith((".setattr", ".delattr", ".setitem")) and _is_made_here(text.partition(".")[0], site):
        return True
    if not _MOCKERS.search(text):
        return False
    root = text.partition(".")[0]
    if root != "patch":
        return True
    ref = resolver.at(site).expr(ast.Name(root, ast.Load()))
    return ref is None or (ref.kind == "external" and "mock" in ref.name)


def is_of_a_test(text: str, site: Site, resolver: Resolver) -> bool:
    """Whether a mock is there to test something: elsewhere it is a patch like any other."""
    function = site.scope.function
    name = getattr(function.node, "name", "") if function is not None else getattr(site.decorated, "name", "")
    in_program = _IN_PROGRAMS.search(text) or _is_made_here(text.partition(".")[0], site)
    return is_test(resolver.model.path) or name.startswith("test") or not in_program


def _is_made_here(name: str, site: Site) -> bool:
    """`mp = pytest.MonkeyPatch()`: not one that a test is handed."""
    made = [b.node.func for b in site.scope.bindings_of(name) if isinstance(b.node, ast.Call)]
    return any("MonkeyPatch" in (path_text(node) or "").split(".") for node in made)


def from_mock(site: Site, resolver: Resolver, text: str) -> list[Install]:
    """What a mock replaces."""
    call = site.call
    leaf = text.rpartition(".")[2]
    if not call.args:
        return []
    first = call.args[0]
    second = call.args[1] if len(call.args) > 1 else None

    new = next((k.value for k in call.keywords if k.arg in {"new", "side_effect"}), None)
    if new is None and leaf in {"object", "patch", "setattr"}:
        by_name = leaf == "patch" or (leaf == "setattr" and len(call.args) == 2)
        new = next(iter(call.args[1 if by_name else 2 :]), None)
    of_a_test = is_of_a_test(text, site, resolver)

    def install(target: str) -> list[Install]:
        return [Install(site, call, target, "mock", True, "", new, *parted(target), mock=of_a_test)]

    dotted = string(first, resolver.at(site))
    if dotted is not None and within(dotted):
        return install(core_target(dotted))
    if leaf in {"dict", "setitem", "delitem"} and "sys.modules" in (resolver.at(site).text(first), dotted):
        keys = second.keys if isinstance(second, ast.Dict) else [second]
        names = [n for key in keys for n in strings(key, resolver.at(site))]
        return [i for n in names if within(n) for i in install(n)]
    if leaf in {"object", "setattr", "delattr", "multiple"}:
        base = resolver.at(site).expr(first)
        if base is None or not base.is_core or base.kind not in {"class", "module", "instance"}:
            return []
        names = strings(second, resolver.at(site))
        if leaf == "multiple":
            names = [keyword.arg for keyword in call.keywords if keyword.arg]
        if not of_a_test:
            installs = set_by_name(site, resolver, first, base, names, new or call)
            for made in installs:
                made.shape = "mock"
            return installs
        names = names or ["*"]
        return [i for name in names for i in install(f"{base.via or base.name}.{name}")]
    return []
