"""How a library uses its own names: each call with its form, what specs and defaults name, what is asked by class."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from mcore_unpatch.building.attributes import slot_of
from mcore_unpatch.building.defined import Body, Defined, hands_on
from mcore_unpatch.building.notes import Called, Notes
from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.syntax import CHILDREN, ancestors, decorated_as, last_name, parameters, parent_of, spelled, walk
from mcore_unpatch.library.facts import How
from mcore_unpatch.library.signatures import Call, written_call

_MOST_WORDS = 60  # characters of a condition
_WORD = re.compile(r"[^\W\d]\w*")
_SPECS = ("ModuleSpec", "Submodules", "partial")
_ASKS = {"isinstance", "issubclass"}
_SETTINGS = ("self.config.", "config.", "args.")
_UNREAD = {"annotation", "returns"}  # what annotations name is used for nothing
_EQUAL = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)


def take_uses(notes: Notes, modules: Iterable[Defined]) -> None:
    """Take down what some modules use."""
    for module in modules:
        _Reader(notes, module, None, {body.node for body in module.bodies}).collect()
        for body in module.bodies:
            _Reader(notes, module, body, ()).collect()


class _Reader:
    """What a function uses, or what stands outside of all functions of a module."""

    def __init__(self, notes: Notes, defined: Defined, body: Body | None, stop: Collection[Any]) -> None:
        self._to, self._names, self._module, self._body = notes, notes.names, defined.name, body
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
                self._to.note(name, How.EXACT, place, built, condition=condition)
                self._to.from_specs.add((name, place, built))
            return
        if leaf == "apply" and (function := self._autograd(node, path.removesuffix(".apply"))):
            # Autograd calls its `forward`, a context first.
            applied = call._replace(positions=call.positions + 1)
            self._to.note(f"{function}.forward", How.EXACT, place, applied, condition=condition)
        for name, how, sure in self._called(path, node.func):
            self._to.note(name, how, place, call, sure, condition)
            if sure and name != place and self._hands_all(node):
                self._to.whole.append((name, how, place, call))

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
