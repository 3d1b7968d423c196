"""How a replacement comes to what it replaced, by what its names were bound to: never by how they are called."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, dict_owner, last_attribute, last_name, path_text

T = TypeVar("T")

_DEEPEST = 3  # a name of a name of a name
_MOST_HELPERS = 8  # that are looked into
_HELPERS = 2  # functions that a replacement goes through to the original
_READERS = {"getattr", "getattr_static"}
_PLAIN = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return
# What may leave out a part of itself, or run it several times or later.
_MAY_NOT = ast.IfExp | ast.BoolOp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda


def calls_original_once(install: Install, new: Replacement) -> bool:
    """Whether a replacement calls what it replaced, by itself and on each of its ways, exactly once."""
    if new.function is None:
        return False
    held = {id(node) for node in reads_of_original(install, new) if not _is_class_read(node, install, new)}
    return bool(held) and once_on_every_path(new.function, lambda call: id(call.func) in held)


def once_on_every_path(function: FunctionNode | ast.Lambda, asked: Callable[[ast.Call], bool]) -> bool:
    """Whether a function makes a call whatever happens, and once: it stands there once, in no branch and no loop."""
    calls = [node for node in walk(function) if isinstance(node, ast.Call) and asked(node)]
    body = [ast.Return(function.body)] if isinstance(function, ast.Lambda) else function.body
    return len(calls) == 1 and _is_always_made(calls[0], body)


def _is_always_made(call: ast.Call, body: Sequence[ast.stmt]) -> bool:
    """Whether one of some statements plainly makes a call, and no `return` comes before."""
    for statement in body:
        nodes = list(walk(statement))
        if call in nodes:
            if isinstance(statement, ast.With | ast.AsyncWith) or getattr(statement, "handlers", None) == []:
                return _is_always_made(call, statement.body)  # type: ignore[attr-defined]
            parts = (node for node in nodes if isinstance(node, _MAY_NOT))
            return isinstance(statement, _PLAIN) and not any(call in walk(part) for part in parts)
        if any(isinstance(node, ast.Return) for node in nodes) and not isinstance(statement, FunctionNode):
            return False
    return False


def way_around_original(install: Install, new: Replacement) -> int:
    """The line of a `return` with a value of its own that a replacement comes to without what it replaced; else 0."""
    held = {id(node) for node in reads_of_original(install, new)}
    if not isinstance(new.function, FunctionNode) or not held:
        return 0
    passed_on = _own_bindings(new)
    lines: list[int] = []

    def asks(node: ast.AST | None) -> bool:
        return node is not None and any(id(part) in held for part in walk(node))

    def ways(body: Sequence[ast.stmt], asked: bool) -> bool | None:
        """Whether the original was asked on every way to the end of some statements; None where none leads there."""
        for statement in body:
            inner = [part for part in ("body", "orelse", "finalbody") if getattr(statement, part, None)]
            if isinstance(statement, ast.Return):
                value = statement.value
                plain = value is None or isinstance(value, ast.Constant) or getattr(value, "id", "") in passed_on
                if not asked and not plain and not asks(value):
                    lines.append(statement.lineno)
                return None
            if isinstance(statement, ast.Raise | ast.Continue | ast.Break):
                return None
            if isinstance(statement, ast.If) and not asks(statement.test):
                ends = [ways(statement.body, asked), ways(statement.orelse, asked)]
                if ends == [None, None]:
                    return None
                asked = all(end for end in ends if end is not None)
            elif isinstance(statement, ast.With | ast.AsyncWith):
                end = ways(statement.body, asked or any(asks(item) for item in statement.items))
                if end is None:
                    return None
                asked = end
            elif asks(statement):
                asked = True
            elif inner and not isinstance(statement, FunctionNode | ast.ClassDef):
                for part in inner:  # a loop may not run, an exception may end what is tried: nobody asks in there
                    ways(getattr(statement, part), asked)
        return asked

    ways(new.function.body, False)
    return min(lines, default=0)


def reaches_original(install: Install, new: Replacement) -> bool:
    """Whether a replacement calls what it replaced, or hands it to somebody who may."""
    return next(reads_of_original(install, new), None) is not None


def calls_of_original(install: Install, new: Replacement) -> list[ast.Call]:
    """The calls of what was replaced."""
    held = {id(node) for node in reads_of_original(install, new)}
    return [call for call in new.calls if id(without_cast(call.func)) in held] if held else []


def reads_of_original(install: Install, new: Replacement, helpers: int = _HELPERS) -> Iterator[ast.expr]:
    """The expressions of a replacement that stand for what it replaced, and the calls of helpers that have such."""
    if new.function is None:
        yield from _in_value(install, new)
        return
    spec = new.function.args
    given = {**_bound_as_defaults(spec, install, new), **dict.fromkeys(_given(install, new), "")}
    inner = _own_bindings(new)
    for name, nodes in new.names_read.items():
        held = given.get(name, name)
        if not held or ((name in given or name not in inner) and _holds(held, install, new)):
            yield from nodes
    kept = _kept_attributes(install, new)
    for name, nodes in new.attributes_read.items():
        yield from (node for node in nodes if name in kept or _is_class_read(node, install, new))
    yield from (call for call in new.calls if kept and _name_asked(call) in kept)
    called = new.helpers if helpers else []
    reach = {
        id(helper): next(reads_of_original(install, helper, helpers - 1), None) is not None
        for helper in list(dict.fromkeys(helper for _, helper in called))[:_MOST_HELPERS]
    }
    yield from (call for call, helper in called if reach.get(id(helper)))


def _name_asked(call: ast.Call) -> str:
    """`name` of `getattr(x, "name")`."""
    match call:
        case ast.Call(func=function, args=[_, ast.Constant(value=str(name)), *_]) if last_name(function) in _READERS:
            return name
    return ""


def without_cast(node: T) -> T | ast.expr:
    """`x` of `cast(Any, x)`; anything else as it is."""
    match node:
        case ast.Call(func=function, args=[_, inner], keywords=[]) if last_name(function) == "cast":
            return inner
    return node


def _is_class_read(node: ast.expr, install: Install, new: Replacement) -> bool:
    named = isinstance(node, ast.Attribute) and node.attr == install.attribute
    return named and _is_of_the_class(node.value, install, new)  # type: ignore[attr-defined]


def _own_bindings(new: Replacement) -> set[str]:
    """The parameters of the replacement: they hide what an outer name holds."""
    assert new.function is not None
    spec = new.function.args
    every = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    return {parameter.arg for parameter in every if parameter is not None}


def _in_value(install: Install, new: Replacement) -> Iterator[ast.expr]:
    """`x.f = wrap(x.f)` with a wrapper from elsewhere: it is given the original; one of our own has to use it."""
    value, at = install.value, _position(install, new)
    made = at.expr(value.func) if at is not None and isinstance(value, ast.Call) else None
    factory = made.node if made is not None and made.home is not None else None
    if isinstance(factory, FunctionNode) and isinstance(value, ast.Call):
        used = {node.id for node in walk(factory) if isinstance(node, ast.Name)}
        names = [parameter.arg for parameter in (*factory.args.args, *factory.args.kwonlyargs)]
        passed = [argument(value, factory, name, False) for name in names if name not in used]
        if any(node is not None and _reads(node, install, new) for node in passed):
            return
    for node in walk(value) if isinstance(value, ast.Call) else ():
        if isinstance(node, ast.Attribute | ast.Call) and _reads(node, install, new):
            yield node


def _position(install: Install, new: Replacement) -> Position | None:
    """Where the patch stands, if the file of its replacement is the one."""
    *_, top = install.site.scope.outwards()
    return new.home.at(install.site) if new.home is not None and new.home.model.scope is top else None


def _is_of_the_class(node: ast.expr, install: Install, new: Replacement) -> bool:
    """`super().f`, `Base.f`, and for an object that was patched alone `Class.f`: these still have the original."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "super":
            below = new.home.on_line(node.lineno).expr(node.args[0]) if node.args and new.home else None
            return below is None or below.name != install.owner or not api.defines(install.target)
        return install.on_instance and node.func.id == "type"
    last = (path_text(node) or "").rpartition(".")[2]
    own, *bases = (name.rpartition(".")[2] for name in api.ancestry(install.owner))
    if last in bases:
        return not api.defines(install.target)  # a base class has what the class inherits
    alone = install.on_instance or install.shape == "instance-attr"
    return alone and last in (own, "__class__")


def _bound_as_defaults(spec: ast.arguments, install: Install, new: Replacement) -> dict[str, str]:
    """`_original=original`: the parameters that hold what a name held, and that name; empty for `_original=X.f`."""
    positional = [*spec.posonlyargs, *spec.args]
    pairs = [*zip(reversed(positional), reversed(spec.defaults), strict=False)]
    pairs += [(one, value) for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None]
    held = {parameter.arg: value.id for parameter, value in pairs if isinstance(value, ast.Name)}
    return held | {
        one.arg: "" for one, value in pairs if not isinstance(value, ast.Name) and _reads(value, install, new)
    }


def _given(install: Install, new: Replacement) -> Iterator[str]:
    """Parameters for the original: of the factory in `make(x.forward)`, the first one in `partial(new, x.forward)`."""
    call, function = install.value, new.function
    factory = _factory(new)
    if is_given_original(install) and function is not None:
        yield from (parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)[:1])
    if install.shape == "string-target" and factory is not None and len(factory.args.args) == 1:
        yield factory.args.args[0].arg  # a registry hands the original to what makes the replacement
    if not isinstance(call, ast.Call) or function is None:
        return
    if call.args and isinstance(call.args[0], ast.Name) and call.args[0].id == getattr(function, "name", None):
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        yield from (
            name
            for name, node in zip(names, call.args[1:], strict=False)
            if is_original(node, install, new, beside=True)
        )
        for word in call.keywords:
            if word.arg and is_original(word.value, install, new, beside=True):
                yield word.arg
    for parameter in (*factory.args.args, *factory.args.kwonlyargs) if factory is not None else ():
        passed = argument(call, factory, parameter.arg, False)  # type: ignore[arg-type]
        if passed is not None and is_original(passed, install, new, beside=True):
            yield parameter.arg


def is_given_original(install: Install) -> bool:
    """`wrap_function_wrapper("module", "name", f)`: a wrapper is given the original, then what the caller gave."""
    call = install.node
    wraps = isinstance(call, ast.Call) and "wrap" in last_attribute(call.func).lower()
    return wraps and install.shape == "string-target"


def _factory(new: Replacement) -> FunctionNode | None:
    scope = _scope(new)
    around = scope.parent if scope is not None else None
    node = around.node if around is not None else None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _scope(new: Replacement) -> Scope | None:
    return new.home.model.functions.get(new.function) if new.home is not None and new.function is not None else None


def is_original(node: ast.AST, install: Install, new: Replacement, *, beside: bool = False) -> bool:
    """Whether an expression beside the patch, or in its replacement, stands for what is replaced."""
    node = without_cast(node)
    return _reads(node, install, new) or (isinstance(node, ast.Name) and _holds(node.id, install, new, beside=beside))


def _reads(node: ast.AST | None, install: Install, new: Replacement) -> bool:
    """`x.name`, `getattr(x, "name")`, `x.__dict__["name"]`, whatever is put around it by a call of one argument."""
    match node:
        case ast.Attribute(attr="__func__" | "__wrapped__", value=inner):
            return _reads(inner, install, new)
        case ast.Attribute(attr=name, value=owner):
            part = install.shape == "class-attr" and (path_text(owner) or "").startswith("self.")  # of the object
            return name == install.attribute and not part and not _is_anothers(owner, install, new)
        case ast.Call(func=function, args=[_, ast.Constant(value=name), *_]):
            return last_name(function) in _READERS and name == install.attribute
        case ast.Call():
            return reads_by_name(node, install)
        case ast.Subscript(value=ast.Attribute(attr="__dict__"), slice=ast.Constant(value=name)):
            return name == install.attribute
        case ast.Name():  # the function itself, imported by its name
            return install.shape in ("module-attr", "string-target") and node.id == install.attribute
    return False


def _is_anothers(owner: ast.expr, install: Install, new: Replacement) -> bool:
    """Whether an attribute is read of a class that is known to be another than the one that is patched."""
    at = _position(install, new)
    ref = at.expr(owner) if at is not None and install.shape != "module-attr" else None
    if ref is None or (install.base is not None and ast.dump(owner) == ast.dump(install.base)):
        return False
    own, last = install.owner.rpartition(".")[2], ref.name.rpartition(".")[2]
    if ref.kind == "external":
        return last[:1].isupper() and last != own
    related = install.owner in api.ancestry(ref.name) or ref.name in api.ancestry(install.owner)
    return ref.kind == "class" and not related


def reads_by_name(node: ast.AST, install: Install) -> bool:
    """`getattr(x, name)` with the very name that `setattr` is given, in a loop over names."""
    match node, install.site.node:
        case ast.Call(func=function, args=[_, name, *_]), ast.Call(args=[_, given, _]):
            return last_name(function) in _READERS and ast.dump(name) == ast.dump(given)
    return False


def _holds(name: str, install: Install, new: Replacement, depth: int = 0, *, beside: bool = False) -> bool:
    """Whether a name `beside` the patch, or beside the replacement, was read from the attribute and is nothing else."""
    inner = _scope(new) if not beside else None  # whose factory may have a parameter of the same name
    scopes = [*(inner.chain() if inner is not None else ()), *install.site.scope.chain()]
    for scope in scopes:
        bound = [binding for binding in scope.bindings.get(name, ()) if binding.kind not in ("narrow", "annotation")]
        if not bound or (scope is inner and name in _own_bindings(new)):  # `original=original` is read outside
            continue
        if name == install.attribute and all(binding.kind in ("from", "import") for binding in bound):
            return install.shape in ("module-attr", "string-target")  # taken by its name before it is replaced
        values = [without_cast(binding.node) for binding in bound if not is_nothing(binding.node)]
        aliases = [value.id for value in values if isinstance(value, ast.Name)]
        if len(aliases) == len(values) and depth < _DEEPEST and aliases:
            return all(alias != name and _holds(alias, install, new, depth + 1, beside=beside) for alias in aliases)
        plain = bool(values) and all(binding.kind == "value" for binding in bound)
        return plain and all(_reads(value, install, new) for value in values)
    return False


def is_nothing(node: ast.AST | None) -> bool:
    """`None`, as in `original = None` before the patch is made."""
    return isinstance(node, ast.Constant) and node.value is None


def _kept_attributes(install: Install, new: Replacement) -> set[str]:
    """The attributes of any object that keep what was read from there: `x._forward = x.forward`."""
    if new.home is None or not (new.attributes_read or new.calls):
        return set()
    home = new.home
    stored = home.kept(_stored, lambda: _stored(home))
    read = {*new.attributes_read, *map(_name_asked, new.calls)} & stored.keys() - {install.attribute}
    return {name for name in read if any(is_original(value, install, new) for value in stored[name])}


def _stored(home: Resolver) -> dict[str, list[ast.expr]]:
    """The attributes that a file sets: `x.name = v`, `setattr(x, "name", v)`, `x.__dict__["name"] = v`."""
    stored: dict[str, list[ast.expr]] = defaultdict(list)
    for site in home.model.sites:
        match site.target, site.value:
            case ast.Attribute(attr=name), ast.expr() as value:
                stored[name].append(value)
            case ast.Subscript(value=holder, slice=ast.Constant(value=str(name))), ast.expr() as value:
                stored[name] += [value] if dict_owner(holder) is not None else []
    for call, _ in home.calls_of("setattr"):
        match call.args:
            case [_, ast.Constant(value=str(name)), value]:
                stored[name].append(value)
    return stored
