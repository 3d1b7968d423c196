"""How a library uses its own names: each call with its form, what specs and defaults name, what is asked by class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.syntax import CHILDREN, ancestors, decorated_as, last_name, parameters, parent_of, spelled, walk
from mcore_unpatch.library.defined import Body, Defined, hands_on, slot_of
from mcore_unpatch.library.facts import How, Use
from mcore_unpatch.library.names import Names
from mcore_unpatch.library.signatures import Call, written_call
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.written import annotated

_MOST_CLASSES = 8  # that one attribute may hold
_MOST_CONDITIONS = 2  # that are said of calls of one form
_MOST_WORDS = 60  # characters of a condition
_WORD = re.compile(r"[^\W\d]\w*")
_SPECS = ("ModuleSpec", "Submodules", "partial")
_ASKS = {"isinstance", "issubclass"}
_SETTINGS = ("self.config.", "config.", "args.")
_UNREAD = {"annotation", "returns"}  # what annotations name is used for nothing
_EQUAL = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)
# How, the form, whether it is sure -> places, each with the condition that it stands under.
_Seen = dict[tuple[How, Call | None, bool], list[tuple[str, str]]]


class Collector:
    """The uses of every name, collected module by module."""

    def __init__(self, names: Names, functions: Iterable[str], slots: Slots) -> None:
        self._names, self._slots = names, slots
        self._seen: dict[str, _Seen] = defaultdict(dict)
        self.loose: set[str] = set()  # attributes that are read from objects nobody knows
        self.texts: set[str] = set()  # words of strings
        self.read: set[str] = set()  # attributes of whatever object
        self.imported: set[str] = set()  # by `from` imports
        self._whole: list[tuple[str, How, str, Call]] = []  # what gets all that a method is given, how, by whom
        self._owners = _method_owners(names, functions)
        self._constructors: dict[str, tuple[str, Any]] = {}  # by class: its module, and the function
        self._from_specs: set[tuple[str, str, Call]] = set()  # constructors, who calls them through a spec, and how

    def take(self, defined: Defined) -> None:
        """Collect what one module uses."""
        self._constructors |= {
            body.owner: (defined.name, body.node) for body in defined.bodies if body.node.name == "__init__"
        }
        _Reader(self, defined, None, {body.node for body in defined.bodies}).collect()
        for body in defined.bodies:
            _Reader(self, defined, body, ()).collect()

    def result(self) -> dict[str, list[Use]]:
        """Each name with the ways in which it is used."""
        for name, how, place, given in self._whole:
            for call in [call for _, call, sure in self._seen.get(place, ()) if call is not None and sure]:
                self.note(name, how, place, call._replace(unpacked=given.unpacked))
        built = {name: seen for name, seen in self._seen.items() if name.endswith(".__init__")}
        for name, seen in built.items():  # who builds a class builds one of each of its bases
            exact = [(call, place) for (how, call, _), places in seen.items() if how == How.EXACT for place in places]
            places = [place for call, place in exact if (name, place[0], call) not in self._from_specs]
            owner = name.removesuffix(".__init__")
            places = [place for place in places if owner not in self._names.lineage(place[0].rpartition(".")[0])[1:]]
            if places:  # what a subclass hands on builds nothing
                self._seen[owner].setdefault((How.CALLED, None, True), []).extend(places)
            for base in self._names.lineage(owner)[1:]:
                if places and self._names.entry(base):
                    self._seen[base].setdefault((How.DERIVED, None, True), []).extend(places)
        found = {name: list(self._uses(name, seen)) for name, seen in self._seen.items()}
        for name, uses in self._slots.uses().items():
            found.setdefault(name, []).extend(uses)
        return found

    def _uses(self, name: str, seen: _Seen) -> Iterator[Use]:
        """Calls of one form, and other uses of one kind, are one use with one place: the one nearest to the definition.

        Of those who build a class it is the one that is used most. Each says how many classes and modules do it, in
        whatever form.
        """
        owner = name.rpartition(".")[0]
        users: dict[tuple[How, bool], set[str]] = defaultdict(set)
        for (how, call, _), places in seen.items():
            users[how, call is None].update(self._owner_of(place) for place, _ in places)
        for (how, call, sure), places in sorted(seen.items(), key=lambda item: (item[0][0], repr(item[0][1:]))):
            builds = call is None and how == How.CALLED
            near = [(not place.startswith(owner), -builds * self._weight(place), place) for place, _ in places]
            every = sorted({condition for _, condition in places})
            told = call is not None and "" not in every and len(every) <= _MOST_CONDITIONS
            told = told and len({condition.removeprefix("not ") for condition in every}) == len(every)  # not both ways
            only = " or ".join(every) if told else ""
            yield Use(how, min(near)[-1], call, sure, only, len(users[how, call is None]))

    def _weight(self, place: str) -> int:
        """In how many places the class is used that a method is of."""
        return sum(map(len, self._seen.get(self._owner_of(place), {}).values()))

    def _owner_of(self, place: str) -> str:
        return place if self._names.is_a(place, "m") else place.rpartition(".")[0]

    def note(
        self, name: str, how: How, place: str, call: Call | None = None, sure: bool = True, condition: str = ""
    ) -> None:
        """Take down one use."""
        self._seen[name].setdefault((how, call, sure), []).append((place, condition))

    def by_name(self, method: str) -> Iterator[Called]:
        """The method that one family of classes has under a name."""
        self.loose.add(method)
        if owner := self._owners.get(method):
            yield Called(f"{owner}.{method}", How.CALLED, False)

    def called(self, body: Body | None, call: ast.Call) -> list[str]:
        """The constructors that a call of a part of a spec reaches."""
        slot = slot_of(call)
        owner = body.owner if body is not None and slot else ""
        return [f"{name}.__init__" for name in self._slots.classes(owner, slot)] if owner else []

    def through_spec(self, name: str, place: str, call: Call, condition: str) -> None:
        """Take down a call that a spec leads to."""
        self.note(name, How.EXACT, place, call, condition=condition)
        self._from_specs.add((name, place, call))

    def handed(self, name: str, how: How, place: str, call: Call) -> None:
        """Take down that something is called with all that a method is given."""
        self._whole.append((name, how, place, call))

    def held(self, owner: str, attribute: str) -> list[str]:
        """The classes that an attribute of a class may hold."""
        found = self._names.find(f"{owner}.{attribute}")
        if found is None:
            return []
        name, entry = found
        if slot := entry.trait("slot"):
            named = self._slots.classes(name.rpartition(".")[0], slot)
            if 0 < len(named) <= _MOST_CLASSES:
                return named
        if several := entry.trait("several"):
            return several.split("|")
        if name != f"{owner}.{attribute}" and (own := self._given_to(owner, attribute)):
            return [own]
        told = (entry.trait(trait) or "" for trait in ("builds", "type"))
        return [cls for cls in told if cls and not cls.startswith("@")][:1]

    def _given_to(self, owner: str, attribute: str) -> str:
        """The class that a constructor says its argument of an attribute's name has, where a base class keeps that."""
        module, function = self._constructors.get(owner, ("", None))
        named = [arg for arg in parameters(function) if arg.arg == attribute] if function is not None else []
        texts = annotated(named[0].annotation) if named else []
        found = self._names.find(f"{module}.{texts[0]}") if len(texts) == 1 else None
        return found[0] if found is not None and found[1].letter == "c" else ""


class Called(NamedTuple):
    """Something that an expression may call; exact: just that definition."""

    name: str
    how: How = How.EXACT
    sure: bool = True


class _Reader:
    """What a function uses, or what stands outside of all functions of a module."""

    def __init__(self, collector: Collector, defined: Defined, body: Body | None, stop: Collection[Any]) -> None:
        self._to, self._names, self._module, self._body = collector, collector._names, defined.name, body
        self._absolute = defined.module.absolute
        self._root = body.node if body is not None else defined.module.tree
        self._place = body.name if body is not None else defined.name
        self._owner = body.owner if body is not None else ""
        self._first = _first_given(body)
        self._flags = {arg.arg for arg in parameters(body.node)} - {"self", "cls"} if body is not None else set()
        self._nodes = list(_walk(self._root, stop))

    def collect(self) -> None:
        """Note every use."""
        parts: set[int] = set()  # of a longer dotted name
        for node in self._nodes:
            kind = node.__class__
            if kind is ast.Call:
                self._call(node)
            if kind is ast.Attribute or kind is ast.Name:
                if kind is ast.Attribute and type(node.ctx) is ast.Load:
                    self._to.read.add(node.attr)
                is_read = kind is ast.Attribute or type(node.ctx) is ast.Load
                if is_read and id(node) not in parts:
                    self._read(node, parts)
            elif kind is ast.ImportFrom:
                source = self._absolute(node.module, node.level)
                self._to.imported.update(f"{source}.{alias.name}" for alias in node.names)
            elif kind is ast.Constant and isinstance(text := node.value, str) and type(parent_of(node)) is not ast.Expr:
                if "import" in text or not any(map(str.isspace, text.strip())):
                    self._to.texts.update(_WORD.findall(text))

    def _start(self, node: ast.AST, root: str) -> str:
        """What a name means at a node: the library's dotted name, where an import leads, or nothing."""
        home = scope_of(node).home_of(root)
        if home is None or home.parent is None or home.is_class:
            return f"{self._module}.{root}"
        for binding in reversed(home.names[root]):
            alias = binding.value
            if binding.kind == BindingKind.IMPORT:
                return str(alias.name if alias.asname else root)
            if binding.kind == BindingKind.FROM:
                return f"{self._absolute(binding.node.module, binding.node.level)}.{alias.name}"
        return ""

    def _meant(self, node: ast.AST, path: str) -> str:
        """What a dotted path means at a node."""
        root, _, rest = path.partition(".")
        start = self._start(node, root)
        return f"{start}.{rest}".rstrip(".") if start else ""

    # -- what is read ------------------------------------------------------------------------------------------------

    def _read(self, node: ast.Attribute | ast.Name, parts: set[int]) -> None:
        inner: ast.expr = node
        words: list[str] = []
        while isinstance(inner, ast.Attribute):
            words.append(inner.attr)
            inner = inner.value
            parts.add(id(inner))
        if not isinstance(inner, ast.Name):
            parts.discard(id(inner))
            self._to.loose.add(words[0])
            return
        start, place = self._start(node, inner.id), self._place
        if not start:  # an object of the function's own; what `self` has is no name of a module
            self._to.loose.update(words[:-1] if inner.id == self._first else words)
            return
        held = self._names.find(start)
        if self._names.entry(start) is not None and (held is None or held[1].letter == "m"):
            self._to.note(start, How.USED, place)  # a module, or imported from what the source lacks
        for number in range(len(words) + 1):
            name = ".".join([start, *words[::-1][:number]])
            found = self._names.find(name)
            if found is None or found[1].letter == "m":
                continue
            way = _role(node) if number == len(words) else How.USED
            if way == How.CALLED and found[1].letter in "vi":
                way = How.USED  # of calls, those of functions and classes are told apart
            if way != How.CALLED and found[0] != place.rpartition(".")[0]:  # a class that names itself tells nothing
                self._to.note(found[0], way, place)
                if name == start != found[0] and self._names.within(start):
                    self._to.note(start, way, place)

    # -- what is called ----------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        path, place = spelled(node.func), self._place
        leaf = path.rpartition(".")[2] or getattr(node.func, "attr", "")
        call, condition = written_call(node, _unpacked(node)), self._condition(node)
        if alias := self._alias(node, path):
            self._to.note(alias, How.EXACT, place, call, condition=condition)
        by_spec = leaf == "build_module" and bool(node.args)
        if by_spec or slot_of(node):
            # A spec adds its submodules and parameters to what is passed.
            built = Call(call.positions - by_spec, call.keywords, call.star, double_star=True)
            for name in self._to.called(self._body, node):
                self._to.through_spec(name, place, built, condition)
            return
        if leaf == "apply" and (function := self._autograd(node, path.removesuffix(".apply"))):
            # Autograd calls its `forward`, a context first.
            applied = call._replace(positions=call.positions + 1)
            self._to.note(f"{function}.forward", How.EXACT, place, applied, condition=condition)
        for name, how, sure in self._called(path, node.func):
            self._to.note(name, how, place, call, sure, condition)
            if sure and name != place and self._hands_all(node):
                self._to.handed(name, how, place, call)

    def _hands_all(self, node: ast.Call) -> bool:
        """`self.f(*args, **kwargs)` in a method that takes just these."""
        spec = self._body.node.args if self._body is not None and self._owner else None
        return spec is not None and len(spec.args) == 1 and not spec.kwonlyargs and hands_on(node, spec)

    def _alias(self, node: ast.Call, path: str) -> str:
        """The name of a module by which something is called that another one defines, if it is such a name."""
        name = self._meant(node, path) if path else ""
        if "." in path:
            holder = self._names.find(name.rpartition(".")[0])
            if holder is None or holder[1].letter != "m":
                return ""
            name = f"{holder[0]}.{name.rpartition('.')[2]}"
        found = self._names.find(name) if self._names.entry(name) is not None else None
        return name if found is not None and found[0] != name else ""

    def _called(self, path: str, function: ast.expr) -> Iterator[Called]:
        """What an expression may call."""
        if not path and isinstance(function, ast.Call) and len(function.args) == 1:
            path = spelled(function.args[0])  # `apply_module(self.router)(hidden)` calls what it is given
            if not path.startswith(f"{self._first}."):
                return
        if not path:
            if isinstance(function, ast.Attribute):
                called = getattr(function.value, "func", None)
                of_base = self._of_base(function.attr) if getattr(called, "id", "") == "super" else ""
                yield from [Called(of_base)] if of_base else self._to.by_name(function.attr)
            return
        root, _, rest = path.partition(".")
        if self._owner and root == self._first and rest:
            yield from self._on_self(rest)
            return
        start = self._start(function, root)
        if not start:
            if rest:
                yield from self._to.by_name(rest.rpartition(".")[2])
            else:
                yield from self._by_variable(function, root)
            return
        found = self._names.find(f"{start}.{rest}" if rest else start)
        if found is None:
            if rest and (held := self._names.find(start)) is not None and held[1].letter in "vi":
                yield from self._to.by_name(rest.rpartition(".")[2])
        elif found[1].letter == "c":
            yield Called(f"{found[0]}.__init__")
        elif found[1].letter == "f":
            yield Called(found[0])

    def _of_base(self, method: str) -> str:
        """The method of a base class that `super()` gives."""
        bases = self._names.lineage(self._owner)[1:] if self._owner else ()
        return next((name for base in bases if self._names.entry(name := f"{base}.{method}")), "")

    def _by_variable(self, node: ast.expr, variable: str) -> Iterator[Called]:
        """What a variable calls: classes that it is set to, what a function gives that picks one, items of a list."""
        home = scope_of(node).home_of(variable)
        for binding in home.names[variable] if home is not None else ():
            at, value = binding.node, binding.value
            if isinstance(at, ast.Assign) and not binding.path:
                for way in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                    yield from self._made(way)
            elif isinstance(at, ast.For) and self._owner and at.lineno <= node.lineno <= (at.end_lineno or 0):
                over = at.iter.args[0] if isinstance(at.iter, ast.Call) and at.iter.args else at.iter
                holder, _, attribute = spelled(over).partition(".")
                lineage = self._names.lineage(self._owner) if holder == self._first else ()
                items = (self._names.heart.lists.get((one, attribute)) for one in lineage)
                yield from (Called(f"{item}.forward", How.CALLED) for item in items if item is not None)

    def _made(self, value: ast.expr) -> Iterator[Called]:
        path = spelled(value.func if isinstance(value, ast.Call) else value)
        found = self._names.find(self._meant(value, path)) if path else None
        if found is not None and isinstance(value, ast.Call):
            yield from map(Called, filter(None, (found[1].trait("picks") or "").split("|")))
        elif found is not None and found[1].letter == "c":
            yield Called(f"{found[0]}.__init__")

    def _on_self(self, rest: str) -> Iterator[Called]:
        """`self.method(...)`, `self.part(...)`, `self.part.method(...)`."""
        head, _, tail = rest.partition(".")
        if not tail:
            found = self._names.find(f"{self._owner}.{head}")
            if found is None or found[1].letter == "f":  # none: a subclass has it
                yield Called(f"{self._owner}.{head}", How.CALLED)
                return
            for name in self._to.held(self._owner, head):
                is_module = any(base.rpartition(".")[2].endswith("Module") for base in self._names.lineage(name)[1:])
                yield Called(f"{name}.{'forward' if is_module else '__call__'}", How.CALLED)
            return
        held = self._to.held(self._owner, head) if "." not in tail else []
        yield from (Called(f"{name}.{tail}", How.CALLED) for name in held)
        if not held:
            yield from self._to.by_name(tail.rpartition(".")[2])

    def _autograd(self, node: ast.Call, path: str) -> str:
        """The function of autograd that a name of the library is, if it is one."""
        found = self._names.find(self._meant(node, path)) if path else None
        name = found[0] if found is not None and found[1].letter == "c" else ""
        is_one = any(base.rpartition(".")[2] == "Function" for base in self._names.lineage(name)) if name else False
        return name if is_one and self._names.entry(f"{name}.forward") is not None else ""

    def _condition(self, call: ast.Call) -> str:
        """The innermost plain `if` on the config, the arguments or a flag that a call stands under."""
        for parent, child in ancestors(call):
            if child is self._root:
                break
            if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
                several = isinstance(parent.test, ast.BoolOp) and isinstance(parent.test.op, ast.And)
                holds = child is parent.body or (
                    isinstance(parent, ast.If) and any(child is one for one in parent.body)
                )
                tests: list[ast.expr] = parent.test.values if several else [parent.test]  # type: ignore[attr-defined]
                words = next((words for test in tests if (words := _plain(test) or _flag(test, self._flags))), "")
                if words and (holds or not several):
                    return words if holds else f"not {words}"
        return ""


def _walk(root: ast.AST, stop: Collection[Any]) -> Iterator[Any]:
    """The nodes of a piece of code, outer ones first; of what is in `stop` the decorators alone."""
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        yield node
        for field in ("decorator_list",) if node in stop else CHILDREN[node.__class__]:
            child = getattr(node, field) if field not in _UNREAD else None
            if child.__class__ is list:
                todo += [item for item in child if item is not None]
            elif child is not None:
                todo.append(child)


def _first_given(body: Body | None) -> str:
    """What a method calls the object itself, or its class."""
    if body is None or not body.owner or decorated_as(body.node, "staticmethod"):
        return ""
    spec = body.node.args
    return next((arg.arg for arg in (*spec.posonlyargs, *spec.args)), "")


def _role(node: ast.AST) -> How:
    """What an expression is there for."""
    parent: Any = parent_of(node)
    around: Any = parent_of(parent) if isinstance(parent, (ast.keyword, ast.Tuple)) else parent
    if isinstance(around, ast.Call) and node is not around.func:
        leaf = last_name(around.func)
        if leaf.endswith(_SPECS) and not isinstance(parent, ast.Tuple):
            return How.NAMED
        if leaf in _ASKS and len(around.args) == 2 and (around.args[1] is node or around.args[1] is parent):
            return How.ASKED
    if isinstance(parent, ast.Call) and parent.func is node:
        return How.CALLED
    if isinstance(parent, ast.ClassDef) and any(base is node for base in parent.bases):
        return How.BASE
    if isinstance(parent, ast.Compare) and any(isinstance(one, _EQUAL) for one in parent.ops):
        return How.COMPARED
    is_default = isinstance(parent, ast.arguments) or (isinstance(parent, ast.AnnAssign) and parent.value is node)
    return How.DEFAULT if is_default else How.USED


def _unpacked(call: ast.Call) -> int:
    """Into how many values a call is unpacked."""
    parent = parent_of(call)
    to = parent.targets[0] if isinstance(parent, ast.Assign) else None
    if not isinstance(to, (ast.Tuple, ast.List)) or any(isinstance(item, ast.Starred) for item in to.elts):
        return 0
    return len(to.elts)


def _plain(test: ast.expr) -> str:
    """A test of one setting and nothing else, as it is written."""
    nodes = list(walk(test))
    settings = [one for one in nodes if isinstance(one, ast.Attribute) and spelled(one).startswith(_SETTINGS)]
    if len(settings) != 1 or any(isinstance(one, (ast.Call, ast.BoolOp, ast.Subscript)) for one in nodes):
        return ""
    text = ast.unparse(test)
    return text if len(text) <= _MOST_WORDS and "|" not in text else ""


def _flag(test: ast.expr, flags: Collection[str]) -> str:
    """A test of one parameter and nothing else: `flag`, `not flag`, `flag is None`."""
    match test:
        case (
            ast.Name(id=name)
            | ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name))
            | ast.Compare(ops=[ast.Is() | ast.IsNot()], left=ast.Name(id=name), comparators=[ast.Constant(value=None)])
        ) if name in flags:
            return ast.unparse(test)
    return ""


def _method_owners(names: Names, functions: Iterable[str]) -> dict[str, str]:
    """Method names that one family of the library's classes has: the class at the root of that family."""
    owners: dict[str, list[str]] = defaultdict(list)
    for name in functions:
        owner, _, leaf = name.rpartition(".")
        if names.is_a(owner, "c") and not leaf.startswith("__") and leaf not in _COMMON:
            owners[leaf].append(owner)
    found = {}
    for method, classes in owners.items():
        root = next((cls for cls in classes if all(cls in names.lineage(other) for other in classes)), None)
        if root is not None:
            found[method] = root
    return found


# Methods that objects from outside of the library have too.
_OTHERS: tuple[type, ...] = (dict, list, set, str, bytes, int, Thread, Queue, BytesIO, Path)
# Python 3.13 and 3.14 gave these to paths and queues: a release reads the same on every Python.
_NEWER = {"copy_into", "from_uri", "full_match", "info", "move", "move_into", "parser", "shutdown"}
_OF_OTHERS = {name for other in _OTHERS for name in dir(other) if not name.startswith("_")} - _NEWER
_COMMON = _OF_OTHERS | {"forward", "backward", "apply", "step", "state_dict", "to", "size", "walk"}
