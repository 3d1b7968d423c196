"""What an expression of the scanned code is worth on one release of Megatron Core: nothing of it is run.

Versions, names and signatures are worked out, as far as conditions ask for them; everything else is unknown.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from typing import Any, Final, cast

from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import api, known as megatron
from mcore_unpatch.megatron.layout import COMPILED
from mcore_unpatch.megatron.roots import ROOT, TRAINING, TRAINING_SINCE, within
from mcore_unpatch.megatron.versions import OLDEST_PYTHON, RELEASES, parse_version
from mcore_unpatch.scanner.conditions.literals import ABSENT, LONGEST, UNKNOWN, AtLeast, Literals, same, tried
from mcore_unpatch.scanner.names.bindings import bound
from mcore_unpatch.scanner.names.expressions import member
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.names.strings import marks_in
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, Scope, path_text

LATER: Final = "0.99.0"  # stands for any release that is newer than the known ones


class ParameterNames(tuple[str, ...]):
    """The names of a signature's parameters."""

    __slots__ = ()


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


def written(node: ast.expr) -> str | None:
    """An object as it is written, `model` or `models[0]`; None for what may be another one each time."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = path_text(node.value)
        return f"{inner}[{node.slice.value!r}]" if inner else None
    return path_text(node)


# A name of a scope that runs over several, and the one of them at hand.
Named = tuple[Scope, str, str]


class Values(Literals):
    """Expressions on one release. `touched` tells whether an answer leaned on which release it is."""

    def __init__(
        self,
        release: str,
        known: tuple[str, str] | None = None,
        named: Named | None = None,
        model: Model | None = None,
    ) -> None:
        self.release, self._model = release, model  # the model where it is none of the known releases
        self._named = named
        self._object = known  # an object as it is written, and its class: known by what is done to it
        self.touched = False
        self._known: dict[tuple[Binding, int], tuple[object, bool, object]] = {}

    @property
    def model(self) -> Model:
        """What this release defines; the newest that is known stands for those to come."""
        return self._model or megatron.model(RELEASES[-1] if self.release == LATER else self.release)

    def runs(self, at: Position, seen_from: Position | None = None) -> bool | None:
        """Whether a place is reached, given that `seen_from` is."""
        raise NotImplementedError

    def has(self, name: str) -> bool | None:
        """Whether this release has a name of Megatron's; None where that is the machine's matter."""
        self.touched = True
        if name.startswith(COMPILED):
            return None
        if f"{name}.".startswith(f"{TRAINING}.") and parse_version(self.release) < TRAINING_SINCE:
            return None  # where it was, it came with a checkout
        if self.release == LATER:  # what the newest has or has lost; of other names nothing is known
            return megatron.has(name, RELEASES[-1]) if megatron.ever(name) else None
        return megatron.holds(self.model, name) if self._model is not None else megatron.has(name, self.release)

    def has_not_yet(self, name: str) -> bool:
        """Whether this release is older than the first that has a name. One that has lost it breaks: another matter."""
        if not name.startswith(ROOT) or self.release not in RELEASES or self.has(name) is not False:
            return False
        since = megatron.first(name)
        return since is not None and RELEASES.index(self.release) < RELEASES.index(since)

    def compare(self, symbol: ast.cmpop, left: object, right: object) -> bool | None:
        """As for any value; a release to come may have parameters that are not known yet."""
        absent = isinstance(right, ParameterNames) and left not in right
        return None if absent and self.release == LATER else super().compare(symbol, left, right)

    # --- names -------------------------------------------------------------------------------------------------

    def _on_Name(self, node: ast.Name, at: Position) -> object:
        value: object = UNKNOWN
        if self._named is not None and self._named[:2] == (at.scope, node.id):
            return self._named[2]
        if at.given is not None and node.id in at.given:
            value = at.given[node.id]
        else:
            scope = at.scope.home_of(node.id)
            if scope is not None:
                value = self._bound(node.id, scope, at)
        if value is UNKNOWN:  # which object it is, is known more often than what it is worth
            ref = at.expr(node)
            if ref is None and self._object is not None and node.id == self._object[0]:
                return Ref("instance", self._object[1])
            return ref if ref is not None and ref.kind == "instance" else UNKNOWN
        return value

    def _bound(self, name: str, scope: Scope, at: Position) -> object:
        """The last binding that this release reaches: above the line in the same scope, anywhere in an outer one."""
        here = scope is at.scope
        for binding in reversed(scope.bindings[name]):
            if binding.kind == "narrow" or (here and binding.line >= at.line and binding.kind != "param"):
                continue
            place = Position(at.home, scope, binding.block, binding.line, at.given if here else None)
            reached = self._reached(binding, place, at)
            if reached is None and binding.block.kind != "except":  # an error that nobody foresees does not count
                return UNKNOWN
            if reached:
                return self._remembered(binding, place)
        return UNKNOWN

    def _reached(self, binding: Binding, place: Position, at: Position) -> bool | None:
        imported = _imported_name(binding)
        if imported is not None and self.has(imported) is False:
            return False
        block: Block | None = binding.block
        while block is not None and block is not place.scope.block:
            if block.kind == "function":
                return None  # `global name` in a function that may run or not
            block = block.parent
        return self.runs(place, at)

    def _remembered(self, binding: Binding, place: Position) -> object:
        key = (binding, id(place.given) if place.given is not None else 0)
        if key not in self._known:
            before, self.touched = self.touched, False
            self._known[key] = UNKNOWN, False, place.given  # what a cycle gets to see
            value = self._of_binding(binding, place)
            self._known[key] = value, self.touched, place.given
            self.touched = before
        value, touched, _ = self._known[key]
        self.touched = self.touched or touched
        return value

    def _of_binding(self, binding: Binding, place: Position) -> object:
        home = place.home
        if binding.kind == "value":
            value = self.value(binding.node, place)
            return UNKNOWN if isinstance(value, list | set | dict) and not value else value  # it is there to be filled
        if binding.kind == "from" and isinstance(binding.node, ast.ImportFrom):
            found = home.from_import(binding.node)
            if found is not None and binding.detail in found.model.scope.bindings:
                return self._exported(found, binding.detail)
            if binding.node.module in _VERSIONED and (fact := self._version_fact(binding.detail)) is not UNKNOWN:
                return fact
        return _known(bound(binding, home, place.scope)) if binding.kind in _NAMED else UNKNOWN

    def _exported(self, home: Resolver, name: str) -> object:
        scope = home.model.scope
        return self._bound(name, scope, home.in_body(scope, sys.maxsize))

    def _on_Attribute(self, node: ast.Attribute, at: Position) -> object:
        base = self.value(node.value, at)
        if isinstance(base, Ref):
            return self._member(base, node.attr, at)
        if isinstance(base, ParameterNames):
            return base if node.attr in _SIGNATURE_PARTS else UNKNOWN
        if isinstance(base, AtLeast):
            return base.bound[0] if node.attr == "major" else UNKNOWN
        if type(base).__name__ == "Version" and node.attr in _VERSION_PARTS:
            return getattr(base, node.attr)
        ref = at.expr(node) if base is UNKNOWN and not at.given else None
        return ref if ref is not None and ref.kind == "instance" else UNKNOWN

    def _member(self, base: Ref, name: str, at: Position) -> object:
        if base.kind == "module" and base.name in _VERSIONED:
            fact = self._version_fact(name)
            if fact is not UNKNOWN:
                return fact
        if base.kind == "external" and base.name == "sys" and name == "version_info":
            return self._python()
        if base.kind == "local-module" and base.home is not None and name in base.home.model.scope.bindings:
            return self._exported(base.home, name)
        if base.kind == "function" and name == "__code__":
            return base
        if base.kind == "function" and name in _SIGNATURE_PARTS:
            return self._signature(base)
        return _known(member(base, name, at.home))

    def _version_fact(self, name: str) -> object:
        self.touched = True
        major, minor, patch = map(int, self.release.split(".")[:3])
        numbers = {"MAJOR": major, "MINOR": minor, "PATCH": patch, "VERSION": (major, minor, patch, "")}
        return self.release if name in {"__version__", "__shortversion__"} else numbers.get(name, UNKNOWN)

    def _python(self) -> AtLeast:
        self.touched = True
        version = parse_version(self.release)
        return AtLeast([python for since, python in OLDEST_PYTHON if since <= version][-1])

    # --- calls -------------------------------------------------------------------------------------------------

    def _on_Call(self, node: ast.Call, at: Position) -> object:
        if isinstance(node.func, ast.Name) and not any(node.func.id in scope.bindings for scope in at.scope.chain()):
            return self._builtin(node.func.id, node, at)
        if isinstance(node.func, ast.Attribute):
            subject = self.value(node.func.value, at)
            if not isinstance(subject, Ref) and subject is not UNKNOWN:
                return self._method(subject, node.func.attr, node, at)
        called = self.value(node.func, at)
        if not isinstance(called, Ref):
            return UNKNOWN
        if called.kind == "local-function" and called.home is not None:
            assert isinstance(called.node, ast.FunctionDef | ast.AsyncFunctionDef)
            return self._returned(called.node, called.home, node, at)
        if called.kind == "external":
            return self._external(called.name, node, at)
        ref = at.expr(node) if not at.given else None
        return ref if ref is not None and ref.kind == "instance" else UNKNOWN

    def _method(self, subject: object, name: str, node: ast.Call, at: Position) -> object:
        if isinstance(subject, ParameterNames) and name in {"keys", "get"}:
            wanted = self.value(node.args[0], at) if node.args else None
            return subject if name == "keys" else wanted if wanted in subject else None
        arguments = self._elements(node.args, at)
        if arguments is None or node.keywords or name not in _METHODS.get(type(subject), "").split():
            return UNKNOWN
        return tried(getattr(subject, name), *arguments)

    def _builtin(self, name: str, node: ast.Call, at: Position) -> object:
        if name == "hasattr" and len(node.args) == 2:
            return self._hasattr(node.args[0], node.args[1], at)
        if name == "getattr" and len(node.args) >= 2:
            return self._getattr(node, at)
        if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            values, function = self.value(node.args[1], at), _BUILTINS.get(node.args[0].id)
            if function is None or not isinstance(values, str | tuple | list) or len(values) > LONGEST:
                return UNKNOWN
            return tried(lambda: tuple(map(function, values)))
        arguments = self._elements(node.args, at)
        if name not in _BUILTINS or arguments is None or node.keywords or any(isinstance(a, Ref) for a in arguments):
            return UNKNOWN
        return tried(_BUILTINS[name], *arguments)

    def _hasattr(self, subject: ast.expr, attribute: ast.expr, at: Position) -> object:
        base, name = self.value(subject, at), self.value(attribute, at)
        if base is UNKNOWN and self._object is not None and written(subject) == self._object[0]:
            base = Ref("instance", self._object[1])
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
                return _known(self.has(dotted))
        return False if _is_mark(subject, name, at) else UNKNOWN

    def _getattr(self, node: ast.Call, at: Position) -> object:
        base, name = self.value(node.args[0], at), self.value(node.args[1], at)
        if not isinstance(name, str):
            return UNKNOWN
        has = self._hasattr(node.args[0], node.args[1], at)
        if has is False and len(node.args) == 3:
            default = self.value(node.args[2], at)
            return ABSENT if default is None and isinstance(base, Ref) and base.kind == "class" else default
        return self._member(base, name, at) if isinstance(base, Ref) else UNKNOWN

    def _external(self, name: str, node: ast.Call, at: Position) -> object:
        arguments = [self.value(argument, at) for argument in node.args]
        first = arguments[0] if arguments else UNKNOWN
        if name in _SIGNATURES:
            return self._signature(first)
        if not isinstance(first, str):
            return UNKNOWN
        if _VERSION_MAKERS.search(name):
            from packaging.version import InvalidVersion, Version

            try:
                return Version(first)
            except InvalidVersion:
                return UNKNOWN
        if name in _DISTRIBUTION_VERSION and re.sub(r"[-_.]+", "-", first).lower() == "megatron-core":
            return self._version_fact("__version__")
        if name == _FOUND_SPEC and within(first):
            has = self.has(first)
            return UNKNOWN if has is None else True if has else None
        return UNKNOWN

    def _signature(self, value: object) -> object:
        """The parameters of a function: of a method without `self` where it was reached through an object."""
        if not isinstance(value, Ref):
            return UNKNOWN
        if isinstance(value.node, ast.FunctionDef | ast.AsyncFunctionDef):
            spec = value.node.args
            named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
            names = tuple(argument.arg for argument in named)
        elif value.is_core and value.kind in {"function", "class"}:
            self.touched = True
            known = megatron.parameter_names(value.name, self.model)
            if known is None:
                return UNKNOWN
            names = known
        else:
            return UNKNOWN
        bound = value.bound or value.kind == "class"
        return ParameterNames(names[1:] if bound and names[:1] == ("self",) else names)

    def _returned(self, function: FunctionNode, home: Resolver, call: ast.Call, at: Position) -> object:
        """What a function of the repository returns for these arguments: by the first return that is reached."""
        scope = home.model.functions.get(function)
        if scope is None or any(keyword.arg is None for keyword in call.keywords):
            return UNKNOWN
        given = self._arguments(function, scope, home, call, at)
        possible: list[object] = []
        for statement, place in home.returns_of(function):
            place = place._replace(given=given)
            reached = self.runs(place)
            if reached is None and place.block.kind == "except":
                continue
            if reached is not False:
                possible.append(self.value(statement.value, place) if statement.value is not None else None)
            if reached:
                break
        return same(possible) if possible else UNKNOWN

    def _arguments(
        self, function: FunctionNode, scope: Scope, home: Resolver, call: ast.Call, at: Position
    ) -> dict[str, object]:
        spec = function.args
        positional = [*spec.posonlyargs, *spec.args]
        outer = home.in_body(scope.parent or scope, function.lineno)
        given: dict[str, object] = dict.fromkeys((one.arg for one in (*positional, *spec.kwonlyargs)), UNKNOWN)
        for one, default in zip(reversed(positional), reversed(spec.defaults), strict=False):
            given[one.arg] = self.value(default, outer)
        for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            given[one.arg] = self.value(value, outer) if value is not None else UNKNOWN
        bound = isinstance(call.func, ast.Attribute) and scope.parent is not None and scope.parent.kind == "class"
        for one, node in zip(positional[1:] if bound else positional, call.args, strict=False):
            given[one.arg] = self.value(node, at)
        given.update({keyword.arg: self.value(keyword.value, at) for keyword in call.keywords if keyword.arg})
        return given


def _known(value: Ref | bool | None) -> object:
    return UNKNOWN if value is None else value


def _is_mark(subject: ast.expr, name: str, at: Position) -> bool:
    """Whether the function around a place leaves an attribute behind, to know the object again."""
    function = at.scope.function
    if function is None or name in api.attribute_names():
        return False
    node = cast("FunctionNode", function.node)
    marks = at.home.kept((marks_in, node), lambda: marks_in(at.home, node))
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
