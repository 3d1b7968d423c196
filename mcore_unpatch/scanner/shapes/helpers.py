"""Functions of the repository that set an attribute of what they are given: their callers make the patches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes import source_rewrites
from mcore_unpatch.scanner.shapes.assigned import is_data
from mcore_unpatch.scanner.shapes.assignments import parameter_of, set_by_name
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Site, path_text


def from_helper_call(site: Site, resolver: Resolver) -> list[Install]:
    """A call of a function of the repository that sets an attribute of one of its parameters by name."""
    call = site.node
    assert isinstance(call, ast.Call)
    if not call.args and not call.keywords:
        return []
    if not any(_may_be_core(value) for value in (*call.args, *(k.value for k in call.keywords))):
        return []
    called = resolver.expr(call.func, site.scope, site.block, call.lineno)
    if called is None or called.kind != "local-function" or called.home is None:
        return []
    function = called.node
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    found = source_rewrites.from_helper(site, resolver, called.home, function)
    for inner in _setattrs_in(called.home, function) if not found else ():
        found += _through(site, resolver, called.home, function, inner)
    if not found and called.home is not resolver:
        found = _assigned_by_helper(site, resolver, called.home, function)
    return found


def is_parametric(site: Site) -> bool:
    """`setattr(obj, name, ...)` where the function around it takes the name: its callers are the patches."""
    call = site.node
    assert isinstance(call, ast.Call)
    if len(call.args) != 3:
        return False
    name = call.args[1]
    if isinstance(name, ast.Attribute) and name.attr == "__name__":
        name = name.value
    return parameter_of(name, site.scope) is not None and parameter_of(call.args[0], site.scope) is not None


def _assigned_by_helper(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode) -> list[Install]:
    """A helper of another file that assigns to a fixed attribute of its parameter: `obj.__class__ = ...`."""
    call = site.node
    assert isinstance(call, ast.Call)
    found = []
    for inner in home.sites_in(function):
        target = inner.target
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
            continue
        if (
            inner.value is None
            or isinstance(inner.value, ast.Constant)
            or parameter_of(target.value, inner.scope) is None
        ):
            continue
        passed = argument(call, function, target.value.id, False)
        base = resolver.expr(passed, site.scope, site.block, call.lineno) if passed is not None else None
        if passed is not None and base is not None and base.is_core:
            found += set_by_name(site, resolver, passed, base, [target.attr], inner.value)
            for install in found:
                install.shape = "class-of-instance" if target.attr == "__class__" else "instance-attr"
    return found


def _may_be_core(value: ast.expr) -> bool:
    text = path_text(value)
    return text is not None or (isinstance(value, ast.Constant) and within(str(value.value)))


def _setattrs_in(home: Resolver, function: FunctionNode) -> Iterator[Site]:
    for other in home.calls_in(function):
        call = other.node
        if isinstance(call, ast.Call) and path_text(call.func) == "setattr" and len(call.args) == 3:
            if parameter_of(call.args[0], other.scope) is not None:
                yield other


def _through(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode, place: Site) -> list[Install]:
    """The patch made by a setattr within a helper, with the arguments of this call put in."""
    call, inner = site.node, place.node
    assert isinstance(call, ast.Call)
    assert isinstance(inner, ast.Call)

    def given(node: ast.expr) -> ast.expr | None:
        return argument(call, function, node.id, False) if isinstance(node, ast.Name) else None

    subject = given(inner.args[0])
    if subject is None:
        return []
    base = resolver.expr(subject, site.scope, site.block, call.lineno)
    if base is None or not base.is_core:
        return []
    if is_data(inner.args[2], place.scope):
        return []  # the helper only leaves a mark
    name_node = inner.args[1]
    names: list[str] = []
    value = given(inner.args[2])
    if isinstance(name_node, ast.Constant):
        names = [str(name_node.value)]
    elif passed := given(name_node):
        names = resolver.strings(passed, site.scope, site.block, call.lineno)
    elif isinstance(name_node, ast.Attribute) and name_node.attr == "__name__" and site.decorated is not None:
        names = [site.decorated.name]  # @patch_method(GPTModel) above `def forward`
    else:
        names = home.strings(name_node, place.scope, place.block, inner.lineno)
    own = {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]}
    if value is None and isinstance(inner.args[2], ast.Name) and inner.args[2].id in own:
        return []  # a default of the helper's: a mark, not a function
    if value is None:
        value = ast.copy_location(ast.Name(site.decorated.name if site.decorated else "", ast.Load()), call)
    return set_by_name(site, resolver, subject, base, names, value)
