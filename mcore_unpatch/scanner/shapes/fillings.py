"""What open names stand for: a function's parameters by a call, an object's fields by its making, a loop's by a row."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from mcore_unpatch.scanner.names.expressions import methods
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.names.strings import Given, display, items
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Site, object_text, path_text

_MOST_ROWS = 1000


Filling = dict[str, Given]  # by the path that is written: `cls`, `self.owner`, `row.name`, `row[0]`


def of_call(call: ast.Call, called: Ref, at: Position) -> Filling:
    """The parameters of a function, or the fields of an object that is made, as a call gives them."""
    home, node = called.home, called.node
    if home is None:
        return {}
    if isinstance(node, FunctionNode):
        return _arguments(call, node, home, at, called.bound)
    return _fields(call, node, home, at) if isinstance(node, ast.ClassDef) else {}


def _arguments(call: ast.Call, function: FunctionNode, home: Resolver, at: Position, bound: bool) -> Filling:
    spec = function.args
    outer = home.model.functions[function].parent
    is_static = any(path_text(decorator) == "staticmethod" for decorator in function.decorator_list)
    is_method = bound or (outer is not None and outer.kind == "class" and not is_static)
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    passed = ((name, argument(call, function, name, is_method)) for name in names)
    return {name: Given(value, at) for name, value in passed if value is not None}


def fields(node: ast.ClassDef, home: Resolver) -> dict[str, str]:
    """What an object keeps of its construction: `self.owner`, and the parameter that it is."""
    init = home.once(methods, node).get("__init__")
    if init is None:  # a dataclass, or a named tuple
        named = [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        return {f"self.{name}": name for name in named}
    bindings = home.model.functions[init].bindings
    kept = ((path, b.node) for path, all_of in bindings.items() if path.startswith("self.") for b in all_of)
    return {
        path: n.id
        for path, n in kept
        if isinstance(n, ast.Name) and n.id in bindings and bindings[n.id][0].kind == "param"
    }


def _fields(call: ast.Call, node: ast.ClassDef, home: Resolver, at: Position) -> Filling:
    kept, init = fields(node, home), home.once(methods, node).get("__init__")
    if init is not None:
        given = _arguments(call, init, home, at, True)
    else:
        pairs = [*zip(kept.values(), call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        given = {name: Given(value, at) for name, value in pairs if not isinstance(value, ast.Starred)}
    return {path: given[name] for path, name in kept.items() if name in given}


def of_loops(site: Site, resolver: Resolver, subject: ast.expr) -> list[Filling]:
    """What the names of the loops around a statement stand for, row by row, if one takes rows apart for `subject`."""
    path = object_text(subject)
    return [given for given in rows_around(site, resolver, {}) if path in given]


def rows_around(site: Site, resolver: Resolver, given: Filling) -> list[Filling]:
    """The rows of the loops around a statement; `given` is what is known of the function's parameters."""
    inner = takewhile(lambda block: block is not site.scope.block, site.block.outwards())
    loops = [(block.owner, block.parent) for block in inner if block.kind == "for" and isinstance(block.owner, ast.For)]
    filled: list[Filling] = [given]
    for loop, around in reversed(loops):
        assert around is not None
        over = Given(loop.iter, Position(resolver, site.scope, around, loop.lineno))
        filled = [{**given, **more} for given in filled for more in _rows(loop.target, over, given)][:_MOST_ROWS]
        resolver.project.effort.spend(len(filled))
    return filled


def _rows(target: ast.expr, over: Given, known: Filling) -> Iterator[Filling]:
    rows = list(_items(over, known))
    yield from (_taken_apart(target, row) for row in rows) if rows else [{}]


def _taken_apart(target: ast.expr, row: Given) -> Filling:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(row.node, ast.Tuple | ast.List):
        found: Filling = {}
        for name, value in zip(target.elts, row.node.elts, strict=False):
            found |= {name.id: row.other(value)} if isinstance(name, ast.Name) else _taken_apart(name, row.other(value))
        return found
    if isinstance(target, ast.Name) and isinstance(row.node, ast.Call):  # a row that is an object
        if path_text(row.node.func) == "dict":
            return {f"{target.id}[{k.arg!r}]": row.other(k.value) for k in row.node.keywords}
        made = row.at.expr(row.node.func)
        fields = of_call(row.node, made, row.at) if made is not None and made.kind == "class" else {}
        return {f"{target.id}.{path.removeprefix('self.')}": given for path, given in fields.items()}
    match target, row.node:
        case ast.Name(id=loop), ast.Constant():
            return {loop: row}
        case ast.Name(id=loop), ast.Tuple(elts=values) | ast.List(elts=values):
            return {f"{loop}[{number}]": row.other(value) for number, value in enumerate(values)}
        case ast.Name(id=loop), ast.Dict(keys=keys, values=values):
            known = zip(keys, values, strict=True)
            return {f"{loop}[{key.value!r}]": row.other(v) for key, v in known if isinstance(key, ast.Constant)}
    return {}


def _items(over: Given, known: Filling) -> Iterator[Given]:
    """What a loop runs over, where it is written out."""
    table = display(over, known)
    match over.node:
        case ast.Call(func=ast.Attribute(attr="items", value=inner), args=[]):
            table = display(over.other(inner), known)
            if table is not None and isinstance(table.node, ast.Dict):
                for key, value in zip(table.node.keys, table.node.values, strict=True):
                    if key is not None:
                        yield table.other(ast.Tuple([key, value], ast.Load()))
        case ast.Call(func=ast.Name(id="zip"), args=columns):
            tables = [display(over.other(column), known) for column in columns]
            written = [items(table) for table in tables if table is not None]
            if len(written) == len(tables):
                yield from (over.other(ast.Tuple(list(row), ast.Load())) for row in zip(*written, strict=False))
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            for number, row in enumerate(_items(over.other(inner), known)):
                yield row.other(ast.Tuple([ast.Constant(number), row.node], ast.Load()))
        case ast.Call(func=ast.Name(id="reversed" | "sorted" | "list" | "tuple" | "set"), args=[inner]):
            yield from _items(over.other(inner), known)
        case _ if table is not None:
            yield from map(table.other, items(table))
            yield from _appended(over)


def _appended(over: Given) -> Iterator[Given]:
    """What a list is given by `append`, where it is made."""
    name, home = path_text(over.node) or "", over.at.home
    if (made := over.at.scope.home_of(name)) is not None:
        for call, block in home.callers.appends(name, made, home.project.effort):
            yield from (Given(row, Position(home, made, block, call.lineno)) for row in call.args)
