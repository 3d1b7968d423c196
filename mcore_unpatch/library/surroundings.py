"""What stands around expressions: what names mean, what each is there for, on what terms."""

from __future__ import annotations

import ast

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import ASKED, BASE, CALLED, COMPARED, DEFAULT, NAMED
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
