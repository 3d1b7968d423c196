"""How a replacement comes to what it replaced: a name, an attribute, a default, or an argument of who made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.scanner.judging.paths import once_on_every_path
from mcore_unpatch.scanner.judging.replacement import Replacement, calls_kept
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope


def calls_original_once(install: Install, new: Replacement) -> bool:
    """Whether a replacement calls what it replaced, by itself and on each of its ways, exactly once."""
    function = new.function
    if function is None:
        return new.delegations == 1
    given = {**_bound_as_defaults(function.args), **dict.fromkeys(_given(install, new), "")}
    called = [node.func for node in walk(function) if isinstance(node, ast.Call)]
    names = [one for one in called if isinstance(one, ast.Name)]
    attributes = [one for one in called if isinstance(one, ast.Attribute)]
    kept = _kept_attributes(install, new) if attributes else set()
    known = {id(one) for one in names if not (name := given.get(one.id, one.id)) or _holds(name, install, new)}
    known |= {id(one) for one in attributes if one.attr in kept}
    if not known:
        return once_on_every_path(function, calls_kept)
    return once_on_every_path(function, lambda call: id(call.func) in known)


def _bound_as_defaults(spec: ast.arguments) -> dict[str, str]:
    """`_original=original`: the parameters that hold what a name held, and that name."""
    positional = [*spec.posonlyargs, *spec.args]
    pairs = [*zip(reversed(positional), reversed(spec.defaults), strict=False)]
    pairs += [(one, value) for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None]
    return {one.arg: value.id for one, value in pairs if isinstance(value, ast.Name)}


def _given(install: Install, new: Replacement) -> Iterator[str]:
    """Parameters for the original: of the factory in `make(x.forward)`, the first one in `partial(new, x.forward)`."""
    call, function = install.value, new.function
    if not isinstance(call, ast.Call) or function is None:
        return
    if call.args and _names_it(call.args[0], function):
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        yield from (name for name, one in zip(names, call.args[1:], strict=False) if _is_original(one, install, new))
    factory = _factory(new)
    for one in (*factory.args.args, *factory.args.kwonlyargs) if factory is not None else ():
        passed = argument(call, factory, one.arg, False)  # type: ignore[arg-type]
        if passed is not None and _is_original(passed, install, new):
            yield one.arg


def _names_it(node: ast.expr, function: FunctionNode | ast.Lambda) -> bool:
    return isinstance(node, ast.Name) and node.id == getattr(function, "name", None)


def _factory(new: Replacement) -> FunctionNode | None:
    scope = _scope(new)
    around = scope.parent if scope is not None else None
    node = around.node if around is not None else None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _scope(new: Replacement) -> Scope | None:
    return new.home.model.functions.get(new.function) if new.home is not None and new.function is not None else None


def _is_original(node: ast.expr, install: Install, new: Replacement) -> bool:
    return _reads(node, install) or (isinstance(node, ast.Name) and _holds(node.id, install, new))


def _reads(node: ast.AST | None, install: Install) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == install.attribute


def _holds(name: str, install: Install, new: Replacement) -> bool:
    """Whether a name beside the patch, or beside the replacement, was read from the attribute and is nothing else."""
    inner = _scope(new)
    scopes = [*install.site.scope.chain(), *(inner.chain() if inner is not None else ())]
    bound = next((scope.bindings[name] for scope in scopes if name in scope.bindings), None)
    return bool(bound) and all(_reads(one.node, install) for one in bound or ())


def _kept_attributes(install: Install, new: Replacement) -> set[str]:
    """The attributes of any object that keep what was read from there: `x._forward = x.forward`."""
    sites = new.home.model.sites if new.home is not None else ()
    pairs = [(site.target, site.value) for site in sites if isinstance(site.target, ast.Attribute)]
    return {one.attr for one, value in pairs if _reads(value, install) and one.attr != install.attribute}
