"""Functions and classes of the repository that set attributes of what they are given: their callers make patches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mcore_unpatch.megatron.versions import within
from mcore_unpatch.scanner.names.expressions import methods
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes import fillings, source_rewrites
from mcore_unpatch.scanner.shapes.assignments import from_assignment, is_setattr, set_by_name
from mcore_unpatch.scanner.shapes.fillings import Filling
from mcore_unpatch.scanner.shapes.install import Install, core_target, is_data, parted
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site, dict_owner, given_to, path_text

_STEPS = 6  # names that come from names

_LEVELS = 3  # helpers that call helpers


class _Write(NamedTuple):
    """A `setattr` within a helper, and what its open names are given."""

    call: ast.Call
    at: Position
    filling: Filling


def from_installers(resolver: Resolver) -> Iterator[Site]:
    """The calls of helpers: of those that this file defines, and of those it imports."""
    names = installers(resolver) | resolver.project.installers_for(resolver.model.path)
    for name in sorted(names):
        for call, at in resolver.calls_of(name):
            statement = resolver.statement_of(call, at.block)
            decorators = getattr(statement, "decorator_list", ())
            decorated = statement if any(node is call for decorator in decorators for node in walk(decorator)) else None
            yield Site(call, statement, at.scope, at.block, decorated=decorated)  # type: ignore[arg-type]


def installers(resolver: Resolver) -> frozenset[str]:
    """The functions and classes of a file that set an attribute, by a name they are given, of what they are given."""
    helpers: set[str] = set()
    for site in resolver.model.calls:
        if isinstance(site.node, ast.Call) and is_setattr(site.node) and is_parametric(site, resolver):
            helpers |= _given_to(site.node.args[0], site.scope, resolver)
    for _ in range(_LEVELS if helpers else 0):
        callers = [call for name in helpers for call in resolver.calls_of(name)]
        helpers |= {owner for call, at in callers for arg in call.args for owner in _given_to(arg, at.scope, resolver)}
    return frozenset(helpers)


def is_parametric(site: Site, resolver: Resolver) -> bool:
    """`setattr(obj, name, ...)` where the function or class around it is given both: its callers are the patches."""
    call = site.call
    if len(call.args) != 3:
        return False
    subject, name = call.args[:2]
    while isinstance(name, ast.BoolOp):  # name or fn.__name__
        name = name.values[0]
    if isinstance(name, ast.Attribute) and name.attr == "__name__":
        name = name.value
    return bool(_given_to(subject, site.scope, resolver) and _given_to(name, site.scope, resolver))


def _given_to(node: ast.expr, scope: Scope, resolver: Resolver) -> set[str]:
    """Who is given something: the function that has it as a parameter, the class that keeps it."""
    if (function := given_to(node, scope)) is not None:
        return {function.name}
    owner = next((around.node for around in scope.outwards() if around.kind == "class"), None)
    if isinstance(owner, ast.ClassDef) and (path_text(node) or "") in fillings.fields(owner, resolver):
        return {owner.name}
    return set()


def from_helper_call(site: Site, resolver: Resolver) -> list[Install]:
    """A call of a function or class of the repository that sets an attribute of what it is given, by name."""
    call = site.call
    if not any(_may_be_core(value) for value in (*call.args, *(k.value for k in call.keywords))):
        return []
    called = resolver.at(site).expr(call.func)
    if called is None or called.home is None or called.node is None:
        return []
    installs = []
    if isinstance(called.node, FunctionNode):
        installs = source_rewrites.from_helper(site, resolver, called.home, called.node)
    at = resolver.at(site)
    for write in _writes(called, resolver, fillings.of_call(call, called, at), _LEVELS) if not installs else ():
        installs += _through(site, resolver, write)
    if not installs and called.home is not resolver and isinstance(called.node, FunctionNode):
        setters = [inner for inner in called.home.sites_in(called.node) if is_setattr(inner.node)]
        given = fillings.of_call(call, called, at)
        installs = [install for inner in setters for install in from_rows(site, inner, called.home, given)]
        installs = installs or _assigned_by_helper(site, resolver, called.home, called.node)
    return installs


def _writes(called: Ref, caller: Resolver, filling: Filling, levels: int) -> Iterator[_Write]:
    """The `setattr`s that a helper makes on what it is given, by itself or through another one."""
    home = called.home
    if home is None or called.node is None or not filling:
        return
    lines = (called.node.lineno, called.node.end_lineno or 0)  # type: ignore[attr-defined]
    home.project.effort.spend(lines[1] - lines[0])
    items = home.once(_items, called.node) if home is not caller else []  # those of its own file tell themselves
    for call in (*home.once(_calls, called.node), *items):
        if is_setattr(call):
            if path_text(call.args[0]) in filling:
                yield _Write(call, home.on_line(call.lineno), filling)
        elif levels and any(path_text(value) in filling for value in (*call.args, *(k.value for k in call.keywords))):
            at = home.on_line(call.lineno)
            inner = at.expr(call.func)
            if inner is not None and inner.home is not None and inner.node is not called.node:
                passed = fillings.of_call(call, inner, at)
                known = {name: filling.get(path_text(given.node) or "", given) for name, given in passed.items()}
                yield from _writes(inner, caller, known, levels - 1)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in walk(node) if isinstance(inner, ast.Call)]


def _items(node: ast.AST) -> list[ast.Call]:
    """`vars(module)[name] = value`, each as the `setattr` that it amounts to."""
    found = []
    for inner in walk(node):
        if isinstance(inner, ast.Assign) and isinstance(item := inner.targets[0], ast.Subscript):
            if (owner := dict_owner(item.value)) is not None:
                put = ast.Call(ast.Name("setattr", ast.Load()), [owner, item.slice, inner.value], [])
                found.append(ast.copy_location(put, inner))
    return found


def _assigned_by_helper(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode) -> list[Install]:
    """A helper of another file that assigns to a fixed attribute of its parameter: `obj.__class__ = ...`."""
    call = site.call
    installs = []
    for inner in home.sites_in(function):
        target = inner.target
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
            continue
        if isinstance(inner.value, ast.Constant | None) or given_to(target.value, inner.scope) is None:
            continue
        passed = argument(call, function, target.value.id, False)
        base = resolver.at(site).expr(passed) if passed is not None else None
        # What the helper's own file tells of it is not told again where it is called.
        if passed is not None and base is not None and base.is_core and not from_assignment(inner, home):
            installs += set_by_name(site, resolver, passed, base, [target.attr], inner.value)
            for install in installs:
                install.shape = "class-of-instance" if target.attr == "__class__" else "instance-attr"
    return installs


def _may_be_core(value: ast.expr) -> bool:
    text = path_text(value)
    return (
        text is not None
        or isinstance(value, ast.Dict | ast.List | ast.Tuple)
        or (isinstance(value, ast.Constant) and within(str(value.value)))
    )


def _through(site: Site, resolver: Resolver, write: _Write) -> list[Install]:
    """The patch made by a setattr within a helper, with what it is given by this call put in."""
    subject = write.filling[path_text(write.call.args[0]) or ""]
    base = subject.ref()
    if (base is not None and not base.is_core) or (base is None and subject.at.home is not resolver):
        return []
    if is_data(write.call.args[2], write.at.scope):
        return []  # the helper only leaves a mark
    name, value = write.call.args[1], _value(site, write)
    passed = write.filling.get(path_text(name) or "")
    if value is None:
        return []
    ends = (subject, passed) if passed is not None else ()
    if ends and all(end.at.scope is site.scope and _given_to(end.node, site.scope, resolver) for end in ends):
        return []  # the call stands in a helper itself, and passes on what that one is given
    if passed is not None and passed.at.scope is not site.scope and passed.at.home is resolver:
        return []  # the helper's own call of another names it
    installs = set_by_name(site, resolver, subject.node, base, _names(site, write, name), value)
    for install in installs:
        install.inner = _inner(write)
    return installs


def _names(site: Site, write: _Write, node: ast.expr) -> list[str]:
    """The names that a helper sets; of a whole class it is given, those of its methods."""
    if isinstance(node, ast.BoolOp):  # name or fn.__name__
        return next((names for value in node.values if (names := _names(site, write, value))), [])
    if (given := write.filling.get(path_text(node) or "")) is not None:
        return strings(*given)
    if isinstance(node, ast.Attribute) and node.attr == "__name__":
        if (given := write.filling.get(path_text(node.value) or "")) is not None:
            return strings(ast.Attribute(given.node, "__name__", ast.Load()), given.at)
        return (
            [site.decorated.name] if site.decorated is not None else []
        )  # @patch_method(GPTModel) above `def forward`
    if isinstance(site.decorated, ast.ClassDef):
        return [name for name in methods(site.decorated) if not name.startswith("__")]
    return strings(node, write.at)


def _value(site: Site, write: _Write) -> ast.expr | None:
    """What a helper puts in place; None for one of its own defaults, which is a mark and no function."""
    node = write.call.args[2]
    path = path_text(node) or ""
    if path in write.filling:
        return write.filling[path].node
    bindings = write.at.scope.bindings.get(path, [])
    if any(binding.kind == "param" for binding in bindings) and site.decorated is None:
        return None
    name = site.decorated.name if site.decorated is not None else ""
    for made in [b.node for b in bindings if isinstance(b.node, ast.Call)] if not name else ():
        factory = write.filling.get(path_text(made.func) or "")
        if factory is not None:  # wrapped = factory(original)
            return ast.copy_location(ast.Call(factory.node, [], []), site.node)
    return ast.copy_location(ast.Name(name, ast.Load()), site.node)


def _inner(write: _Write) -> Position:
    """Where the helper sets the attribute, with what is known of its parameters."""
    known = {}
    for name, given in write.filling.items():
        texts, ref = strings(*given), given.ref()
        if len(texts) == 1 or ref is not None:
            known[name] = texts[0] if len(texts) == 1 else ref
    return write.at._replace(given=known)


def from_rows(site: Site, setter: Site, home: Resolver, given: Filling) -> list[Install]:
    """What a `setattr` in a loop replaces, where object and name come from the texts of a row.

    It may stand in a function of another file, which the call at hand gives the table.
    """
    subject, name, value = setter.call.args
    if path_text(subject) is None and not isinstance(subject, ast.Call):
        return []
    installs = []
    for row in fillings.rows_around(setter, home, given):
        texts = {path: known[0] for path, cell in row.items() if len(known := strings(*cell)) == 1}
        for path, dotted in texts.items():
            rest = _rest(path, texts, subject, name, setter.scope) if within(dotted) else None
            if rest is not None:
                cell, put = row[path], row.get(path_text(value) or "")
                target = core_target(f"{dotted}{rest}")
                new = put.node if put is not None else value
                # The row itself, if it is here.
                node = cell.node if cell.at.home is home and site is setter else site.node
                installs.append(Install(site, node, target, "string-target", True, "", new, *parted(target)))
    return installs


def _rest(path: str, texts: dict[str, str], subject: ast.expr, name: ast.expr, scope: Scope) -> str | None:
    """What is behind a dotted name that the object comes from: nothing, or the text that the name comes from."""
    if not _from(subject, path, scope):
        return None
    if _from(name, path, scope):
        return ""
    return next((f".{texts[other]}" for other in texts if other != path and _from(name, other, scope)), None)


def _from(node: ast.expr, name: str, scope: Scope, steps: int = _STEPS) -> bool:
    """Whether an expression is made from a name, through the names of its scope."""
    for used in [inner.id for inner in walk(node) if isinstance(inner, ast.Name)]:
        if used == name:
            return True
        for binding in scope.bindings_of(used) if steps else ():
            if binding.kind in {"value", "opaque"} and isinstance(binding.node, ast.expr):
                if _from(binding.node, name, scope, steps - 1):
                    return True
    return False
