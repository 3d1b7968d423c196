"""What stands around expressions: what names mean, what each is there for, on what terms; what becomes of arguments."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.fact import Call, parameters
from mcore_unpatch.library.model import ASKED, BASE, CALLED, COMPARED, DEFAULT, NAMED, Model
from mcore_unpatch.library.syntax import Nodes, dotted, source_of

ById = dict[int, str]  # of nodes
_SPECS = ("ModuleSpec", "Submodules", "partial")
_ASKS = {"isinstance", "issubclass"}
_SETTINGS = ("self.config.", "config.", "args.")
_MOST_WORDS = 60  # characters of a condition


def local_names(body: Body, package: str) -> dict[str, str]:
    """What a function binds, functions within it included: where an import leads, or nothing."""
    nodes = body.nodes
    names = {node.arg: "" for node in nodes.of(ast.arg)}
    names |= {node.id: "" for node in nodes.of(ast.Name) if type(node.ctx) is ast.Store}
    inner = nodes.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names |= {node.name: "" for node in inner if node is not body.node}
    for node in nodes.of(ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            names[alias.asname or top] = alias.name if alias.asname else top
    for node in nodes.of(ast.ImportFrom):
        names |= {alias.asname or alias.name: f"{source_of(node, package)}.{alias.name}" for alias in node.names}
    for node in nodes.of(ast.Global):
        for name in node.names:
            names.pop(name, None)
    return names


def parameters_given(body: Body | None) -> frozenset[str]:
    """The names of what a function is given, the object itself left out."""
    spec = body.node.args if body is not None else None
    every = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs) if spec is not None else ()
    return frozenset(arg.arg for arg in every) - {"self", "cls"}


def first_given(body: Body | None) -> str:
    """What a method calls the object itself, or its class."""
    if body is None or not body.owner:
        return ""
    spec = body.node.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)][:1]
    static = any(dotted(decorator).endswith("staticmethod") for decorator in body.node.decorator_list)
    return names[0] if names and not static else ""


def hands_all(node: ast.Call, body: Body | None) -> bool:
    """`self.f(*args, **kwargs)` in a method that takes just these."""
    spec = body.node.args if body is not None and body.owner else None
    if spec is None or spec.vararg is None or spec.kwarg is None or len(spec.args) != 1 or spec.kwonlyargs:
        return False
    return ast.unparse(node).endswith(f"(*{spec.vararg.arg}, **{spec.kwarg.arg})")


def roles_of(nodes: Nodes) -> ById:
    """What expressions are there for, by their identity; where nothing else is said they are just used."""
    roles: ById = {}
    for node in nodes.of(ast.FunctionDef, ast.AsyncFunctionDef):
        roles |= {id(default): DEFAULT for default in (*node.args.defaults, *filter(None, node.args.kw_defaults))}
    roles |= {id(node.value): DEFAULT for node in nodes.of(ast.AnnAssign) if node.value is not None}
    roles |= {id(base): BASE for node in nodes.of(ast.ClassDef) for base in node.bases}
    for node in nodes.of(ast.Compare):  # `type(x) is Class`, `x.__class__ == Class`, `value is Class`
        if any(isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) for op in node.ops):
            roles |= {id(side): COMPARED for side in (node.left, *node.comparators)}
    for node in nodes.of(ast.Call):
        leaf = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
        if leaf.endswith(_SPECS):
            for value in (*node.args, *(word.value for word in node.keywords)):
                roles.setdefault(id(value), NAMED)
        elif leaf in _ASKS and len(node.args) == 2:
            asked = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            roles |= {id(value): ASKED for value in asked}
        roles[id(node.func)] = CALLED
    return roles


def conditions_of(nodes: Nodes, flags: frozenset[str] = frozenset()) -> ById:
    """Calls under a plain `if` on the config, the arguments or a flag, by their identity; of several the innermost."""
    conditions: ById = {}
    for node in nodes.of(ast.If, ast.IfExp):
        several = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
        body, orelse = (way if isinstance(way, list) else [way] for way in (node.body, node.orelse))
        for test in node.test.values if several else [node.test]:
            if words := _plain(test) or _flag(test, flags):
                conditions |= {id(call): words for call in Nodes(body).of(ast.Call)}
                conditions |= {id(call): f"not {words}" for call in Nodes([] if several else orelse).of(ast.Call)}
                break
    return conditions


def _plain(test: ast.expr) -> str:
    """A test of one setting and nothing else, as it is written."""
    paths = [dotted(part) for part in ast.walk(test) if isinstance(part, ast.Attribute)]
    settings = [path for path in paths if path.startswith(_SETTINGS)]
    rest = (part for part in ast.walk(test) if isinstance(part, ast.Call | ast.BoolOp | ast.Subscript))
    text = ast.unparse(test)
    return text if len(settings) == 1 and not any(rest) and len(text) <= _MOST_WORDS and "|" not in text else ""


def _flag(test: ast.expr, flags: frozenset[str]) -> str:
    """A test of one parameter and nothing else: `flag`, `not flag`, `flag is None`."""
    match test:
        case (
            ast.Name(id=name)
            | ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name))
            | ast.Compare(ops=[ast.Is() | ast.IsNot()], left=ast.Name(id=name), comparators=[ast.Constant(value=None)])
        ) if name in flags:
            return ast.unparse(test)
    return ""


def unpacked_counts(nodes: Nodes) -> dict[int, int]:
    """How many values are unpacked from a call, by its identity."""
    return {
        id(node.value): len(node.targets[0].elts)
        for node in nodes.of(ast.Assign)
        if isinstance(node.value, ast.Call)
        and isinstance(node.targets[0], ast.Tuple | ast.List)
        and not any(isinstance(item, ast.Starred) for item in node.targets[0].elts)
    }


_Parameter = tuple[str, str]  # of a function, by its dotted name


class Handed:
    """The calls of parameters: by the function itself, and by those that it hands them on to."""

    def __init__(self) -> None:
        self._called: dict[_Parameter, set[tuple[str, str]]] = defaultdict(set)  # the form, and on what condition
        self._passed: dict[_Parameter, set[tuple[str, int | str, str]]] = defaultdict(set)
        self.whole: list[tuple[str, str, str, Call]] = []  # what gets all that a method is given, how, by whom

    def called(self, function: str, parameter: str, call: Call, condition: str) -> None:
        """A function calls one of its parameters, maybe on a condition alone."""
        self._called[function, parameter].add((str(call), condition))

    def passed(self, function: str, given: frozenset[str], node: ast.Call, callee: str, condition: str) -> None:
        """A function calls another one, maybe with some of its own parameters."""
        for index, value in enumerate(node.args):
            if isinstance(value, ast.Starred):
                break
            if isinstance(value, ast.Name) and value.id in given:
                self._passed[function, value.id].add((callee, index, condition))
        for word in node.keywords:
            if word.arg and isinstance(word.value, ast.Name) and word.value.id in given:
                self._passed[function, word.value.id].add((callee, word.arg, condition))

    def traits(self, model: Model) -> dict[str, list[str]]:
        """By function: `hands:name=2+keyword,keyword/2` for each way in which a parameter is called.

        Behind a `?` stands the condition under which alone it is, its spaces as ones that no trait ends at.
        """
        found: dict[str, list[str]] = defaultdict(list)
        for function, parameter in sorted({*self._called, *self._passed}):
            conditions: dict[str, set[str]] = defaultdict(set)
            for form, condition in self._calls((function, parameter), model, ()):
                conditions[form].add(condition)
            for form, several in sorted(conditions.items()):
                only = "" if len(several) > 1 or several == {""} else f"?{min(several)}".replace(" ", "\xa0")
                found[function].append(f"hands:{parameter}={form}{only}")
        return found

    def _calls(self, start: _Parameter, model: Model, on_the_way: tuple[_Parameter, ...]) -> set[tuple[str, str]]:
        called = set(self._called.get(start, ()))
        for callee, slot, condition in self._passed.get(start, ()):
            known = model.function(callee)
            names = parameters(model.detail_for_callers(known)).positional if known is not None else ()
            name = slot if isinstance(slot, str) else names[slot] if slot < len(names) else ""
            if known is not None and name and (known.name, name) not in (start, *on_the_way):
                calls = self._calls((known.name, name), model, (start, *on_the_way))
                called |= {(form, condition or inner) for form, inner in calls}
        return called


class ParserOptions:
    """The names that the parsers of a library put on what they return."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._factories: set[str] = set()  # classes that make options of the fields of a dataclass
        # Classes that are built with another one, which may be a dataclass that they make options of.
        self.opened: list[tuple[str, str, ast.Call, Nodes]] = []

    def added(self, node: ast.Call, owner: str) -> None:
        """`parser.add_argument(...)`, in a method of a class or not."""
        flags = [flag for argument in node.args if (flag := _text(argument))]
        dest = [text for word in node.keywords if word.arg == "dest" and (text := _text(word.value))]
        long = [flag for flag in flags if flag.startswith("--")] or flags
        self._names.update(dest or [flag.lstrip("-").replace("-", "_") for flag in long[:1]])
        if not flags and owner:
            self._factories.add(owner)

    def described(self, node: ast.Dict) -> None:
        """`{"dest": "name"}`, in what a field of a dataclass says of its option."""
        pairs = zip(node.keys, node.values, strict=True)
        self._names.update(filter(None, (_text(value) for key, value in pairs if key and _text(key) == "dest")))

    def set_on(self, node: ast.Attribute) -> None:
        """`args.name = ...`."""
        if isinstance(node.value, ast.Name) and node.value.id == "args":
            self._names.add(node.attr)

    def names(self, model: Model) -> set[str]:
        """All of them."""
        found = set(self._names)
        for cls, target, node, nodes in self.opened:
            known = model.find(target) if cls in self._factories else None
            taken = model.called_with(known.name) if known is not None and known.fact.kind == "class" else None
            found |= set(taken.names).difference(_left_out(node, nodes)) if taken is not None else set()
        return found


def _left_out(node: ast.Call, nodes: Nodes) -> Iterator[str]:
    """The fields of `exclude=[...]`, given as they are or by a variable."""
    values = [word.value for word in node.keywords if word.arg == "exclude"]
    names = {dotted(value) for value in values}
    values += [one.value for one in nodes.of(ast.Assign) if {dotted(target) for target in one.targets} & names - {""}]
    for value in values:
        yield from map(_text, getattr(value, "elts", ()))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
