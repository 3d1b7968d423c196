"""What each kind of expression is worth on one release, for `Reached.value`: names, calls, `hasattr`, signatures."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from mcore_unpatch.code.literals import LITERALS, several
from mcore_unpatch.code.members import member
from mcore_unpatch.code.module import Binding, BindingKind, Scope, inner_scope, is_method, scope_of
from mcore_unpatch.code.syntax import (
    NAMED_FUNCTIONS,
    ancestors,
    argument,
    decorated_as,
    default_of,
    own_nodes,
    parameters,
    spelled,
    walk,
)
from mcore_unpatch.code.values import Kind, Value, Values
from mcore_unpatch.code.worth import (
    ABSENT,
    BUILTINS,
    LONGEST,
    MISSING,
    UNKNOWN,
    VERSION_PARTS,
    Given,
    OnRelease,
    ParameterNames,
    called_on,
    known,
    same,
    tried,
    version,
)

_SIGNATURES = {"inspect.signature", "inspect.getfullargspec", "inspect.getargspec"}
_SIGNATURE_PARTS = {"parameters", "args", "kwonlyargs", "co_varnames"}
_VERSION_MAKERS = ("parse_version", "LooseVersion", "StrictVersion", "version.parse", "version.Version", "PkgVersion")
_DISTRIBUTION_VERSION = {"importlib.metadata.version", "importlib_metadata.version"}


def _name(run: OnRelease, node: ast.Name, given: Given | None) -> object:
    scope = scope_of(node)
    home = scope.home_of(node.id)
    if given is not None and home is not None and (home, node.id) in given:
        value: object = given[home, node.id]
    else:
        value = _bound(run, node.id, home, node, given) if home is not None else UNKNOWN
    if value is not UNKNOWN:
        return value
    return _object(run, node, spelled(node))


def _object(run: OnRelease, node: ast.expr, path: str) -> object:
    """Which object an expression is: that is known more often than what it is worth."""
    if run.subject is not None and path and path == run.subject[0]:
        return run.subject[1]
    found = run.names.of(node)
    return found[0] if len(found) == 1 and found[0].kind == Kind.INSTANCE else UNKNOWN


def _bound(run: OnRelease, name: str, home: Scope, node: ast.AST, given: Given | None) -> object:
    """The last binding that this release reaches: above the node in the same scope, anywhere in an outer one."""
    inside = node is not home.node and scope_of(node) is home
    here = node if inside else home.node
    for binding in reversed(home.names[name]):
        if inside and binding.kind != BindingKind.PARAMETER and _stands_behind(binding.node, node):
            continue
        reached = _is_bound(run, binding, home, here, given)
        if reached is None and not any(isinstance(one, ast.ExceptHandler) for one, _ in ancestors(binding.node)):
            return UNKNOWN  # an error that nobody foresees does not count
        if reached:
            return _remembered(run, binding, home, given)
    return UNKNOWN


def _stands_behind(at: ast.AST, node: ast.AST) -> bool:
    position = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return (getattr(at, "lineno", 0), getattr(at, "col_offset", 0)) >= position or any(
        parent is at for parent, _ in ancestors(node)
    )


def _is_bound(run: OnRelease, binding: Binding, home: Scope, here: ast.AST, given: Given | None) -> bool | None:
    imported = _imported_name(run, binding)
    if imported and run.release.has(imported) is False:
        return False
    if binding.kind == BindingKind.PARAMETER:
        return True
    if scope_of(binding.node).function() is not home.function():
        return None  # `global name` in a function that may run or not
    return run.between(binding.node, here, given)


def _imported_name(run: OnRelease, binding: Binding) -> str:
    """The dotted name of the library that a binding imports."""
    name = ""
    if binding.kind == BindingKind.FROM and not binding.node.level:
        name = f"{binding.node.module}.{binding.value.name}"
    elif binding.kind == BindingKind.IMPORT:
        name = binding.value.name
    return name if run.names.library.within(name) else ""


def _remembered(run: OnRelease, binding: Binding, home: Scope, given: Given | None) -> object:
    key = (id(binding.node), id(binding.value), binding.path)
    return run.remembered(key, given, lambda: _of_binding(run, binding, home, given))


def _of_binding(run: OnRelease, binding: Binding, home: Scope, given: Given | None) -> object:
    node: Any = binding.node
    if binding.kind == BindingKind.ASSIGNMENT:
        if isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.With)):
            return UNKNOWN
        value = run.value(binding.value, given)
        for step in binding.path:
            value = tried(operator.getitem, value, step) if isinstance(step, int) else UNKNOWN
        return UNKNOWN if isinstance(value, (list, set, dict)) and not value else value  # it is there to be filled
    if binding.kind == BindingKind.PARAMETER:
        return UNKNOWN
    if binding.kind == BindingKind.FROM:
        source = run.names.imported_from(binding, home)
        if source.kind == Kind.MODULE and source.node is not None:
            inner = inner_scope(source.node)
            if binding.value.name in inner.names:
                return _bound(run, binding.value.name, inner, source.node, None)
        fact = run.release.version_fact(source.name, binding.value.name)
        if fact is not None:
            return fact
    return _only(run.names.bound_to(binding, home, None))


def _only(found: Values) -> object:
    """The one thing that something is; what is there for type checkers alone is false."""
    if len(found) == 1:
        return False if found[0].name == "typing.TYPE_CHECKING" else found[0]
    return UNKNOWN


def _attribute(run: OnRelease, node: ast.Attribute, given: Given | None) -> object:
    base = run.value(node.value, given)
    if isinstance(base, Value):
        return _member(run, base, node.attr)
    if base is MISSING:
        return MISSING
    if isinstance(base, ParameterNames):
        return base if node.attr in _SIGNATURE_PARTS else UNKNOWN
    if type(base).__name__ == "Version" and node.attr in VERSION_PARTS:
        return getattr(base, node.attr)
    return _object(run, node, spelled(node))


def _member(run: OnRelease, base: Value, name: str) -> object:
    if base.kind == Kind.MODULE:
        fact = run.release.version_fact(base.name, name)
        if fact is not None:
            return fact
        inner = inner_scope(base.node) if base.node is not None else None
        if inner is not None and name in inner.names:
            return _bound(run, name, inner, base.node, None)
    if base.kind == Kind.FUNCTION and name == "__code__":
        return base
    if base.kind in (Kind.CLASS, Kind.INSTANCE) and base.node is None and run.names.library.is_class(base.name):
        dotted = f"{base.name}.{name}"
        if run.release.has(dotted) is False and run.release.ever(dotted):
            return MISSING
    if base.kind == Kind.FUNCTION and name in _SIGNATURE_PARTS:
        return _signature(run, base)
    return _only(member(run.names, base, name))


# -- calls -----------------------------------------------------------------------------------------------------------


def _call(run: OnRelease, node: ast.Call, given: Given | None) -> object:
    if isinstance(node.func, ast.Name) and scope_of(node).home_of(node.func.id) is None:
        return _builtin(run, node.func.id, node, given)
    if isinstance(node.func, ast.Attribute):
        subject = run.value(node.func.value, given)
        if not isinstance(subject, Value) and subject is not UNKNOWN:
            arguments = [run.value(one, given) for one in node.args]
            return UNKNOWN if node.keywords else called_on(subject, node.func.attr, arguments, run.is_later)
    called = run.value(node.func, given)
    if isinstance(called, Value) and called.kind == Kind.FUNCTION and isinstance(called.node, NAMED_FUNCTIONS):
        return _returned(run, called.node, node, given)
    names = [called] if isinstance(called, Value) else run.names.of(node.func)
    outside = next((one.name for one in names if one.kind in (Kind.OTHER, Kind.FUNCTION, Kind.CLASS)), "")
    value = _external(run, outside, node, given) if outside else UNKNOWN
    return value if value is not UNKNOWN else _object(run, node, "")


def _builtin(run: OnRelease, name: str, node: ast.Call, given: Given | None) -> object:
    if name == "hasattr" and len(node.args) == 2:
        return _hasattr(run, node.args[0], node.args[1], given)
    if name == "getattr" and len(node.args) >= 2:
        return _getattr(run, node, given)
    if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
        values, function = run.value(node.args[1], given), BUILTINS.get(node.args[0].id)
        if function is None or not isinstance(values, (str, tuple, list)) or len(values) > LONGEST:
            return UNKNOWN
        return tried(lambda: tuple(map(function, values)))
    arguments = several(run, node.args, given)
    if name not in BUILTINS or arguments is None or node.keywords:
        return UNKNOWN
    return tried(BUILTINS[name], *arguments)


def _hasattr(run: OnRelease, subject: ast.expr, attribute: ast.expr, given: Given | None) -> object:
    base, name = run.value(subject, given), run.value(attribute, given)
    if not isinstance(name, str) or name.startswith("__"):
        return UNKNOWN
    if not isinstance(base, Value):
        return False if _is_mark(run, subject, name) else UNKNOWN
    library = run.names.library
    if base.kind in (Kind.MODULE, Kind.CLASS, Kind.INSTANCE):
        owners = [base.name] if base.kind == Kind.MODULE and base.node is None else run.names.of_library(base)
        if base.node is not None and base.kind != Kind.MODULE and member(run.names, base, name):
            if any(name in one.node._inner.names for one in run.names.lineage(base) if one.node is not None):
                return True
        if owners and library.within(owners[0]):
            dotted = f"{owners[0]}.{name}"
            ever = run.release.ever(dotted)
            if ever or (base.kind != Kind.INSTANCE and base.node is None):
                has = run.release.has(dotted)
                if has and base.kind == Kind.INSTANCE and run.release.may_lack(dotted):
                    return UNKNOWN
                if has is not True and _is_added(run, base, name, subject):
                    return UNKNOWN
                if has is None and run.is_later and not ever:
                    return not _is_mark(run, subject, name)  # who asks for what no release has was told that it comes
                return known(has)
    return False if _is_mark(run, subject, name) else UNKNOWN


def _is_added(run: OnRelease, base: Value, name: str, subject: ast.expr) -> bool:
    """Whether the file puts such a name there above: on the same thing, as far as is known, not on its own objects."""
    for store in scope_of(subject).module.stores:
        target = store.target
        if not isinstance(target, ast.Attribute) or target.attr != name or target.lineno >= subject.lineno:
            continue
        others = run.names.of(target.value)
        apart = base.kind == Kind.MODULE and others and all(one.name != base.name for one in others)
        if not apart and spelled(target.value) != "self":
            return True
    return False


def _is_mark(run: OnRelease, subject: ast.expr, name: str) -> bool:
    """Whether the function around leaves an attribute behind, to know the object again."""
    function = scope_of(subject).function()
    library = run.names.library
    if function is None or library.owners(name) or next(iter(library.modules_with(name)), None):
        return False
    path = spelled(subject)
    read = [one.lineno for one in walk(function.node) if isinstance(one, ast.Attribute) and one.attr == name]
    for store in function.module.stores:
        target = store.target
        if isinstance(target, ast.Attribute) and target.attr == name and target.lineno <= min(read, default=0):
            if any(parent is function.node for parent, _ in ancestors(target)):
                flag = isinstance(store.value, ast.Constant) and store.value.value is True
                if spelled(target.value) == path or (flag and isinstance(target.value, ast.Name)):
                    return True
    for call in own_nodes(function.node, ast.Call):
        if spelled(call.func) == "setattr" and len(call.args) == 3 and spelled(call.args[0]) == path:
            if name in {one.name for one in run.names.of(call.args[1]) if one.kind == Kind.TEXT}:
                return True
    return False


def _getattr(run: OnRelease, node: ast.Call, given: Given | None) -> object:
    base, name = run.value(node.args[0], given), run.value(node.args[1], given)
    if not isinstance(name, str):
        return UNKNOWN
    has = _hasattr(run, node.args[0], node.args[1], given)
    if has is False and len(node.args) == 3:
        default = run.value(node.args[2], given)
        return ABSENT if default is None and isinstance(base, Value) and base.kind == Kind.CLASS else default
    if not isinstance(base, Value) or (has is UNKNOWN and len(node.args) == 3 and run.names.library.within(base.name)):
        return UNKNOWN
    return _member(run, base, name)


def _external(run: OnRelease, name: str, node: ast.Call, given: Given | None) -> object:
    arguments = [run.value(one, given) for one in node.args]
    first = arguments[0] if arguments else UNKNOWN
    if name in _SIGNATURES:
        return _signature(run, first)
    if name.endswith(_VERSION_MAKERS):
        return version(first)
    if not isinstance(first, str):
        return UNKNOWN
    if name in _DISTRIBUTION_VERSION and run.release.is_distribution(first):
        return run.release.label
    if name == "importlib.util.find_spec" and run.names.library.within(first):
        has = run.release.has(first)
        return UNKNOWN if has is None else True if has else None
    return UNKNOWN


def _signature(run: OnRelease, value: object) -> object:
    """The parameters of a function: of a method without `self` where it was reached through an object."""
    if not isinstance(value, Value):
        return MISSING if value is MISSING else UNKNOWN
    if isinstance(value.node, NAMED_FUNCTIONS):
        names = tuple(one.arg for one in parameters(value.node))
    elif value.node is None and run.names.library.within(value.name) and value.kind in (Kind.FUNCTION, Kind.CLASS):
        found = run.release.parameters(value.name)
        if found is None:
            return UNKNOWN
        names = tuple(found)
    else:
        return UNKNOWN
    bound = value.kind == Kind.CLASS or (value.owner is not None and value.owner.kind == Kind.INSTANCE)
    return ParameterNames(names[1:] if bound and names[:1] == ("self",) else names)


def _returned(run: OnRelease, function: Any, call: ast.Call, given: Given | None) -> object:
    """What a function of the repository returns for these arguments: by the first return that is reached."""
    passed = _arguments(run, function, call, given)
    possible: list[object] = []
    for answer in own_nodes(function, ast.Return):
        reached = run.between(answer, function, passed)
        if reached is None and any(isinstance(one, ast.ExceptHandler) for one, _ in ancestors(answer)):
            continue
        if reached is not False:
            possible.append(run.value(answer.value, passed) if answer.value is not None else None)
        if reached:
            break
    return same(possible)


def _arguments(run: OnRelease, function: Any, call: ast.Call, given: Given | None) -> Given:
    """What the parameters of a function of the repository are in a call of it, as far as that is known."""
    unpacks = any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords)
    bound = is_method(function) and not decorated_as(function, "staticmethod")
    inner = inner_scope(function)
    found: Given = {}
    for one in parameters(function):
        node = argument(one, call, bound)
        is_default = node is not None and node is default_of(one)
        found[inner, one.arg] = UNKNOWN if unpacks or node is None else run.value(node, None if is_default else given)
    return found


VISITORS: dict[type, Callable[[Any, Any, Given | None], object]] = {
    **LITERALS,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
}
