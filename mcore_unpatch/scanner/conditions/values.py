"""What an expression of the scanned code is worth on one release of Megatron Core: nothing of it is run.

Versions, names and signatures are worked out, as far as conditions ask for them; everything else is unknown.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import Any, cast

from mcore_unpatch.megatron import api, known as megatron
from mcore_unpatch.megatron.versions import ROOT, within
from mcore_unpatch.scanner.conditions.literals import (
    ABSENT,
    LITERALS,
    LONGEST,
    UNKNOWN,
    Handler,
    ParameterNames,
    Run,
    same,
    tried,
)
from mcore_unpatch.scanner.names.bindings import bound
from mcore_unpatch.scanner.names.expressions import member
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.sources.callers import argument, with_defaults
from mcore_unpatch.scanner.sources.scopes import Binding, FunctionNode, Scope, object_text, path_text

_BUILTINS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (int, str, float, bool, tuple, list, set, frozenset, len, all, any, min, max, sorted)
}
_METHODS: dict[type, str] = {
    str: "split rsplit startswith endswith strip lstrip rstrip replace partition rpartition removeprefix lower isdigit",
    tuple: "index count",
    list: "index count copy",
    set: "issubset issuperset isdisjoint intersection union difference",
    frozenset: "issubset issuperset isdisjoint intersection union difference",
    dict: "get keys values items",
    ParameterNames: "index count",
}
_VERSION_PARTS = {"base_version", "release", "major", "minor", "micro", "public"}
_VERSION_MAKERS = re.compile(r"(?:^|\.)(?:parse_version|LooseVersion|StrictVersion|version\.parse|version\.Version)$")
_DISTRIBUTION_VERSION = {"importlib.metadata.version", "importlib_metadata.version"}
_SIGNATURES = {"inspect.signature", "inspect.getfullargspec", "inspect.getargspec"}
_SIGNATURE_PARTS = {"parameters", "args", "kwonlyargs", "co_varnames"}
_FOUND_SPEC = "importlib.util.find_spec"
_VERSIONED = {ROOT, f"{ROOT}.package_info"}
_NAMED = {"import", "from", "def", "class"}


def _name(node: ast.Name, at: Position, run: Run) -> object:
    value: object = UNKNOWN
    if run.named is not None and run.named[:2] == (at.scope, node.id):
        return run.named[2]
    if at.given is not None and node.id in at.given:
        value = at.given[node.id]
    else:
        scope = at.scope.home_of(node.id)
        if scope is not None:
            value = _bound(node.id, scope, at, run)
    if value is UNKNOWN:  # which object it is, is known more often than what it is worth
        ref = at.expr(node)
        if ref is None and run.object is not None and node.id == run.object[0]:
            return Ref("instance", run.object[1])
        return ref if ref is not None and ref.kind == "instance" else UNKNOWN
    return value


def _bound(name: str, scope: Scope, at: Position, run: Run) -> object:
    """The last binding that this release reaches: above the line in the same scope, anywhere in an outer one."""
    here = scope is at.scope
    for binding in reversed(scope.bindings[name]):
        if binding.kind == "narrow" or (here and binding.line >= at.line and binding.kind != "param"):
            continue
        place = Position(at.home, scope, binding.block, binding.line, at.given if here else None)
        reached = _reached(binding, place, at, run)
        if reached is None and binding.block.kind != "except":  # an error that nobody foresees does not count
            return UNKNOWN
        if reached:
            return _remembered(binding, place, run)
    return UNKNOWN


def _reached(binding: Binding, place: Position, at: Position, run: Run) -> bool | None:
    imported = _imported_name(binding)
    if imported is not None and run.release.has(imported) is False:
        return False
    blocks = takewhile(lambda block: block is not place.scope.block, binding.block.outwards())
    if any(block.kind == "function" for block in blocks):
        return None  # `global name` in a function that may run or not
    return run.reaches(place, at)


def _remembered(binding: Binding, place: Position, run: Run) -> object:
    key = (binding, id(place.given) if place.given is not None else 0)
    if key not in run.bindings:
        before, run.release.touched = run.release.touched, False
        run.bindings[key] = UNKNOWN, False, place.given  # what a cycle gets to see
        value = _of_binding(binding, place, run)
        run.bindings[key] = value, run.release.touched, place.given
        run.release.touched = before
    value, touched, _ = run.bindings[key]
    run.release.touched = run.release.touched or touched
    return value


def _of_binding(binding: Binding, place: Position, run: Run) -> object:
    home = place.home
    if binding.kind == "value":
        value = run.value(binding.node, place)
        return UNKNOWN if isinstance(value, list | set | dict) and not value else value  # it is there to be filled
    if binding.kind == "from" and isinstance(binding.node, ast.ImportFrom):
        resolver = home.from_import(binding.node)
        if resolver is not None and binding.detail in resolver.model.scope.bindings:
            return _exported(resolver, binding.detail, run)
        fact = run.release.version_fact(binding.detail) if binding.node.module in _VERSIONED else None
        if fact is not None:
            return fact
    return _known(bound(binding, home, place.scope)) if binding.kind in _NAMED else UNKNOWN


def _exported(home: Resolver, name: str, run: Run) -> object:
    scope = home.model.scope
    return _bound(name, scope, home.in_body(scope, sys.maxsize), run)


def _attribute(node: ast.Attribute, at: Position, run: Run) -> object:
    base = run.value(node.value, at)
    if isinstance(base, Ref):
        return _member(base, node.attr, at, run)
    if isinstance(base, ParameterNames):
        return base if node.attr in _SIGNATURE_PARTS else UNKNOWN
    if type(base).__name__ == "Version" and node.attr in _VERSION_PARTS:
        return getattr(base, node.attr)
    ref = at.expr(node) if base is UNKNOWN and not at.given else None
    return ref if ref is not None and ref.kind == "instance" else UNKNOWN


def _member(base: Ref, name: str, at: Position, run: Run) -> object:
    if base.kind == "module" and base.name in _VERSIONED:
        fact = run.release.version_fact(name)
        if fact is not None:
            return fact
    if base.kind == "local-module" and base.home is not None and name in base.home.model.scope.bindings:
        return _exported(base.home, name, run)
    if base.kind == "function" and name == "__code__":
        return base
    if base.kind == "function" and name in _SIGNATURE_PARTS:
        return _signature(base, run)
    return _known(member(base, name, at.home))


def _call(node: ast.Call, at: Position, run: Run) -> object:
    if isinstance(node.func, ast.Name) and not any(node.func.id in scope.bindings for scope in at.scope.chain()):
        return _builtin(node.func.id, node, at, run)
    if isinstance(node.func, ast.Attribute):
        subject = run.value(node.func.value, at)
        if not isinstance(subject, Ref) and subject is not UNKNOWN:
            return _method(subject, node.func.attr, node, at, run)
    called = run.value(node.func, at)
    if not isinstance(called, Ref):
        return UNKNOWN
    if called.kind == "local-function" and called.home is not None:
        assert isinstance(called.node, ast.FunctionDef | ast.AsyncFunctionDef)
        return _returned(called.node, called.home, node, at, run)
    if called.kind == "external":
        return _external(called.name, node, at, run)
    ref = at.expr(node) if not at.given else None
    return ref if ref is not None and ref.kind == "instance" else UNKNOWN


def _method(subject: object, name: str, node: ast.Call, at: Position, run: Run) -> object:
    if isinstance(subject, ParameterNames) and name == "keys":
        return subject
    if isinstance(subject, ParameterNames) and name == "get" and node.args:
        wanted = run.value(node.args[0], at)
        missing = UNKNOWN if wanted is UNKNOWN or run.release.is_later else None
        return wanted if wanted in subject else missing
    arguments = run.values(node.args, at)
    if arguments is None or node.keywords or name not in _METHODS.get(type(subject), "").split():
        return UNKNOWN
    return tried(getattr(subject, name), *arguments)


def _builtin(name: str, node: ast.Call, at: Position, run: Run) -> object:
    if name == "hasattr" and len(node.args) == 2:
        return _hasattr(node.args[0], node.args[1], at, run)
    if name == "getattr" and len(node.args) >= 2:
        return _getattr(node, at, run)
    if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
        values, function = run.value(node.args[1], at), _BUILTINS.get(node.args[0].id)
        if function is None or not isinstance(values, str | tuple | list) or len(values) > LONGEST:
            return UNKNOWN
        return tried(lambda: tuple(map(function, values)))
    arguments = run.values(node.args, at)
    if name not in _BUILTINS or arguments is None or node.keywords or any(isinstance(a, Ref) for a in arguments):
        return UNKNOWN
    return tried(_BUILTINS[name], *arguments)


def _hasattr(subject: ast.expr, attribute: ast.expr, at: Position, run: Run) -> object:
    base, name = run.value(subject, at), run.value(attribute, at)
    if base is UNKNOWN and run.object is not None and object_text(subject) == run.object[0]:
        base = Ref("instance", run.object[1])
    if not isinstance(name, str):
        return UNKNOWN
    if not isinstance(base, Ref):
        return False if _is_mark(subject, name, at) else UNKNOWN
    if base.is_core and base.kind in {"module", "class", "instance"}:
        own = member(base, name, at.home) if base.node is not None else None
        if own is not None and own.home is not None:
            return True
        dotted = f"{base.name}.{name}"
        known = megatron.ever(dotted)
        if (known or base.kind in {"module", "class"}) and not (known and base.via):
            has = run.release.has(dotted)
            if has and base.kind == "instance" and (told := run.release.model.find(dotted)) is not None:
                return UNKNOWN if told.fact.trait("maybe") is not None else True
            return _known(has) if has is not False or not _is_added(base, name, at) else UNKNOWN
    return False if _is_mark(subject, name, at) else UNKNOWN


def _is_added(base: Ref, name: str, at: Position) -> bool:
    """Whether the file has put such a name above on it, or on what may be it: no other module, no object's `self`."""
    for site in at.home.model.sites:
        target = site.target
        if site.node.lineno >= at.line or not isinstance(target, ast.Attribute) or target.attr != name:
            continue
        other = at.home.at(site).expr(target.value)
        apart = other is not None and other.kind == base.kind == "module" and other.name != base.name
        if not apart and getattr(target.value, "id", "") != "self":
            return True
    return False


def _getattr(node: ast.Call, at: Position, run: Run) -> object:
    base, name = run.value(node.args[0], at), run.value(node.args[1], at)
    if not isinstance(name, str):
        return UNKNOWN
    has = _hasattr(node.args[0], node.args[1], at, run)
    if has is False and len(node.args) == 3:
        default = run.value(node.args[2], at)
        return ABSENT if default is None and isinstance(base, Ref) and base.kind == "class" else default
    if not isinstance(base, Ref) or (has is UNKNOWN and base.is_core and len(node.args) == 3):
        return UNKNOWN
    return _member(base, name, at, run)


def _external(name: str, node: ast.Call, at: Position, run: Run) -> object:
    arguments = [run.value(argument, at) for argument in node.args]
    first = arguments[0] if arguments else UNKNOWN
    if name in _SIGNATURES:
        return _signature(first, run)
    if not isinstance(first, str):
        return UNKNOWN
    if _VERSION_MAKERS.search(name):
        from packaging.version import InvalidVersion, Version

        try:
            return Version(first)
        except InvalidVersion:
            return UNKNOWN
    if name in _DISTRIBUTION_VERSION and re.sub(r"[-_.]+", "-", first).lower() == "megatron-core":
        return _known(run.release.version_fact("__version__"))
    if name == _FOUND_SPEC and within(first):
        has = run.release.has(first)
        return UNKNOWN if has is None else True if has else None
    return UNKNOWN


def _signature(value: object, run: Run) -> object:
    """The parameters of a function: of a method without `self` where it was reached through an object."""
    if not isinstance(value, Ref):
        return UNKNOWN
    if isinstance(value.node, ast.FunctionDef | ast.AsyncFunctionDef):
        spec = value.node.args
        named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
        names = tuple(argument.arg for argument in named)
    elif value.is_core and value.kind in {"function", "class"}:
        known = run.release.parameters(value.name)
        if known is None:
            return UNKNOWN
        names = known
    else:
        return UNKNOWN
    bound = value.bound or value.kind == "class"
    return ParameterNames(names[1:] if bound and names[:1] == ("self",) else names)


def _returned(function: FunctionNode, home: Resolver, call: ast.Call, at: Position, run: Run) -> object:
    """What a function of the repository returns for these arguments: by the first return that is reached."""
    given = arguments(function, home, call, at, run)
    possible: list[object] = []
    for statement, place in home.returns_of(function):
        place = place._replace(given=given)
        reached = run.reaches(place)
        if reached is None and place.block.kind == "except":
            continue
        if reached is not False:
            possible.append(run.value(statement.value, place) if statement.value is not None else None)
        if reached:
            break
    return same(possible) if possible else UNKNOWN


def arguments(function: FunctionNode, home: Resolver, call: ast.Call, at: Position, run: Run) -> dict[str, object]:
    """What the parameters of a function of the repository are in a call of it, as far as that is known."""
    outer = home.outside(function)
    unpacks = any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords)
    given: dict[str, object] = {}
    for parameter, default in with_defaults(function):
        passed = argument(call, function, parameter.arg, outer.scope.kind == "class")
        told = run.value(passed, at) if passed is not None else run.value(default, outer)
        given[parameter.arg] = UNKNOWN if unpacks else told
    return given


def _known(value: object) -> object:
    return UNKNOWN if value is None else value


def _is_mark(subject: ast.expr, name: str, at: Position) -> bool:
    """Whether the function around a place leaves an attribute behind, to know the object again."""
    function = at.scope.function
    if function is None or name in api.attribute_names():
        return False
    node = cast("FunctionNode", function.node)
    marks = at.home.kept((_marks_in, node), lambda: _marks_in(at.home, node))
    return (None, name) in marks or (path_text(subject), name) in marks


def _imported_name(binding: Binding) -> str | None:
    """The dotted name of Megatron Core that a binding imports."""
    if binding.kind == "from" and isinstance(binding.node, ast.ImportFrom) and not binding.node.level:
        name = f"{binding.node.module}.{binding.detail}"
    elif binding.kind == "import":
        name = binding.detail
    else:
        return None
    return name if within(name) else None


def _marks_in(home: Resolver, function: FunctionNode) -> frozenset[tuple[str | None, str]]:
    """What a function writes, as object and attribute: the marks it leaves on an object are not there before.

    `new.mine = True` is a mark on what is put in place, which is asked for under another name: None stands for it.
    """
    marks: set[tuple[str | None, str]] = set()
    for subject, key, value in filter(None, (site.written for site in home.sites_in(function))):
        flag = isinstance(subject, ast.Name) and isinstance(value, ast.Constant) and value.value is True
        names = strings(key, home.on_line(value.lineno))
        marks |= {(text, name) for name in names for text in (path_text(subject) or "", None)[: 1 + flag]}
    return frozenset(marks)


KINDS: dict[type, Handler] = {**LITERALS, ast.Name: _name, ast.Attribute: _attribute, ast.Call: _call}
