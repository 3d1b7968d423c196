"""What stands around the expressions of a piece of code: what its names mean, what each is there for, on what terms."""

from __future__ import annotations

import ast

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import ASKED, BASE, CALLED, DEFAULT, NAMED
from mcore_unpatch.library.syntax import Nodes, dotted, source_of

ById = dict[int, str]  # of nodes
_SPECS = ("ModuleSpec", "Submodules", "partial")
_ASKS = {"isinstance", "issubclass"}
_SETTINGS = ("self.config.", "config.", "args.")
_MOST_WORDS = 60  # characters of a condition


def local_names(body: Body, package: str) -> dict[str, str]:
    """What a function binds, functions within it included: where an import leads, or nothing."""
    nodes = body.nodes
    found = {node.arg: "" for node in nodes.of(ast.arg)}
    found |= {node.id: "" for node in nodes.of(ast.Name) if type(node.ctx) is ast.Store}
    inner = nodes.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found |= {node.name: "" for node in inner if node is not body.node}
    for node in nodes.of(ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            found[alias.asname or top] = alias.name if alias.asname else top
    for node in nodes.of(ast.ImportFrom):
        found |= {alias.asname or alias.name: f"{source_of(node, package)}.{alias.name}" for alias in node.names}
    for node in nodes.of(ast.Global):
        for name in node.names:
            found.pop(name, None)
    return found


def roles_of(nodes: Nodes) -> ById:
    """What expressions are there for, by their identity; where nothing else is said they are just used."""
    roles: ById = {}
    for node in nodes.of(ast.FunctionDef, ast.AsyncFunctionDef):
        roles |= {id(default): DEFAULT for default in (*node.args.defaults, *filter(None, node.args.kw_defaults))}
    roles |= {id(node.value): DEFAULT for node in nodes.of(ast.AnnAssign) if node.value is not None}
    roles |= {id(base): BASE for node in nodes.of(ast.ClassDef) for base in node.bases}
    for node in nodes.of(ast.Compare):  # `type(x) is Class`, `x.__class__ == Class`, `value is Class`
        if any(isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) for op in node.ops):
            roles |= {id(side): ASKED for side in (node.left, *node.comparators)}
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


def conditions_of(nodes: Nodes) -> ById:
    """Calls under a plain `if` on the config or the arguments, by their identity; of several the innermost."""
    found: ById = {}
    for node in nodes.of(ast.If):
        several = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
        for test in node.test.values if several else [node.test]:
            if words := _plain(test):
                found |= {id(call): words for call in Nodes(node.body).of(ast.Call)}
                found |= {id(call): f"not {words}" for call in Nodes([] if several else node.orelse).of(ast.Call)}
                break
    return found


def _plain(test: ast.expr) -> str:
    """A test of one setting and nothing else, as it is written."""
    paths = [dotted(part) for part in ast.walk(test) if isinstance(part, ast.Attribute)]
    settings = [path for path in paths if path.startswith(_SETTINGS)]
    rest = (part for part in ast.walk(test) if isinstance(part, ast.Call | ast.BoolOp | ast.Subscript))
    text = ast.unparse(test)
    return text if len(settings) == 1 and not any(rest) and len(text) <= _MOST_WORDS and "|" not in text else ""


def unpacked_counts(nodes: Nodes) -> dict[int, int]:
    """How many values are unpacked from a call, by its identity."""
    return {
        id(node.value): len(node.targets[0].elts)
        for node in nodes.of(ast.Assign)
        if isinstance(node.value, ast.Call)
        and isinstance(node.targets[0], ast.Tuple | ast.List)
        and not any(isinstance(item, ast.Starred) for item in node.targets[0].elts)
    }
