"""What code asks of Megatron: each import, attribute and call, where it stands, and what has to hold for it to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mcore_unpatch.library.fact import Call
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.usage import form
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.scanner.conditions.literals import Position
from mcore_unpatch.scanner.conditions.live import Run
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import children
from mcore_unpatch.scanner.sources.scopes import Block, FunctionNode, path_text

IMPORT, INSTALL, CALL = "import", "install", "call"  # when it runs
_NAMED = {"function", "class", "value", "module"}
_CATCHES = {
    "ImportError": {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""},
    "AttributeError": {"AttributeError", "Exception", "BaseException", ""},
    "TypeError": {"TypeError", "Exception", "BaseException", ""},
    "ValueError": {"ValueError", "Exception", "BaseException", ""},
}
_MOST_HELPERS = 30
_MOST_STEPS = 20_000  # for the conditions around one of them
_DEEPEST = 3

# Of the statements of a file: what runs later, and what is read for itself.
_APART = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom

Tests = tuple[tuple[ast.expr, bool], ...]


@dataclass(frozen=True, eq=False)
class Demand:
    """One use of a name of Megatron's; `module` where it is imported, `call` where it is called."""

    name: str
    when: str
    at: Position = field(repr=False)
    call: Call | None = None
    module: str = ""
    tests: Tests = ()  # around it in its own statement
    by_name: bool = False  # the file's own name for it: what fails is the import
    through_class: bool = False  # `Class.method(object, ...)`, or a name that holds the method

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.at.line

    @property
    def path(self) -> str:
        """The file it stands in."""
        return self.at.home.model.path

    def runs_on(self, model: Model, exception: str) -> bool:
        """Whether it is reached on a release, and nobody around it expects the exception."""
        if is_caught(self.at.block, exception):
            return False
        run = runner(model)
        try:
            with self.at.home.project.effort.at_most(_MOST_STEPS):
                if any(run.truth(test, self.at) is (not wanted) for test, wanted in self.tests):
                    return False
                return run.runs(self.at) is not False
        except Exhausted:
            return True  # what keeps it from running is too much to work out


def runner(model: Model) -> Run:
    """Conditions on the release of a model."""
    return Run(model.label, model=None if model.label in RELEASES else model)


def is_caught(block: Block | None, exception: str) -> bool:
    """Whether a `try` around a block, within the same function, handles an exception."""
    while block is not None and block.kind not in ("function", "class"):
        if block.kind == "try" and isinstance(block.owner, ast.Try):
            for handler in block.owner.handlers:
                caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                names = {"" if name is None else ast.unparse(name).rpartition(".")[2] for name in caught}
                if names & _CATCHES[exception]:
                    return True
        block = block.parent
    return False


class Demands:
    """Everything that a patch stands on: what importing its files needs, what installs it, what it calls."""

    def __init__(self, install: Install, resolver: Resolver) -> None:
        self._install, self._resolver = install, resolver
        self._seen: set[int] = set()

    def of_import(self, home: Resolver) -> Iterator[Demand]:
        """What the import of a file needs: its own imports, and what its statements read."""
        if not home.on_import:
            home.on_import.extend([None, *self._of_import(home)])
        yield from home.on_import[1:]  # type: ignore[misc]

    def _of_import(self, home: Resolver) -> Iterator[Demand]:
        for node in home.once(_imports_of, home.model.tree):
            scope, block = home.model.at(node.lineno)
            if scope.kind == "module":
                yield from _imported(node, Position(home, scope, block, node.lineno), IMPORT)
        for statement in home.model.tree.body:
            if not isinstance(statement, _APART):
                yield from self.of_code(statement, home, IMPORT, inner=False)

    def of_installer(self) -> Iterator[Demand]:
        """What the function around the patch does."""
        function = self._install.site.scope.function
        if function is not None:
            yield from self.of_code(function.node, self._resolver, INSTALL, inner=False)

    def of_code(
        self, code: ast.AST, home: Resolver, when: str, inner: bool = True, itself: str | None = None, depth: int = 0
    ) -> Iterator[Demand]:
        """What a piece of code does, with helpers that it calls; `itself` names the patched object."""
        if id(code) in self._seen or (depth and len(self._seen) > _MOST_HELPERS):
            return
        if depth:
            self._seen.add(id(code))
        waiting: list[tuple[ast.AST, Tests, int]] = [(node, (), 0) for node in children(code)]
        while waiting:
            node, tests, unpacked = waiting.pop(0)
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef() if not inner:
                    waiting += [(one, tests, 0) for one in getattr(node, "decorator_list", ())]
                    continue
                case ast.Import() | ast.ImportFrom():
                    yield from _imported(node, self._place(node, home), when)
                case ast.IfExp(test=test, body=body, orelse=orelse):
                    waiting += [
                        (test, tests, 0),
                        (body, (*tests, (test, True)), 0),
                        (orelse, (*tests, (test, False)), 0),
                    ]
                    continue
                case ast.BoolOp(op=op, values=values):
                    wanted = isinstance(op, ast.And)
                    for index, value in enumerate(values):
                        waiting.append((value, (*tests, *((other, wanted) for other in values[:index])), 0))
                    continue
                case ast.Assign(targets=[ast.Tuple(elts=elts)], value=ast.Call() as value):
                    count = 0 if any(isinstance(item, ast.Starred) for item in elts) else len(elts)
                    waiting += [(item, tests, 0) for item in elts]
                    waiting.append((value, tests, count))
                    continue
                case ast.Call():
                    yield from self._called(node, home, when, tests, unpacked, itself, depth)
                    if _asks_first(node):
                        continue
                    waiting += [(one, tests, 0) for one in (*node.args, *(word.value for word in node.keywords))]
                    if not self._name(node.func, home, itself):
                        waiting.append((node.func, tests, 0))
                    continue
                case ast.Attribute() if isinstance(node.ctx, ast.Load):
                    if name := self._name(node, home, itself):
                        yield Demand(name, when, self._place(node, home), tests=tests)
                        continue
            waiting += [(one, tests, 0) for one in children(node)]

    def _called(
        self, node: ast.Call, home: Resolver, when: str, tests: Tests, unpacked: int, itself: str | None, depth: int
    ) -> Iterator[Demand]:
        place = self._place(node, home)
        if name := self._name(node.func, home, itself):
            by_name = isinstance(node.func, ast.Name)
            through = by_name or not self._is_bound(node.func, home, itself)
            call = form(node, unpacked)
            if put := _put_into(node, place):
                call = replace(call, keywords=(*call.keywords, *(key for key in put if key not in call.keywords)))
            yield Demand(name, when, place, call, "", tests, by_name, through)
            return
        ref = home.expr(node.func, place.scope, place.block, place.line) if depth < _DEEPEST else None
        if ref is not None and ref.home is not None and ref.kind == "local-function":
            if isinstance(ref.node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self.of_code(ref.node, ref.home, when, True, None, depth + 1)

    def _place(self, node: ast.stmt | ast.expr, home: Resolver) -> Position:
        return Position(home, *home.model.at(node.lineno), node.lineno)

    def _name(self, node: ast.expr, home: Resolver, itself: str | None) -> str:
        """The dotted name of Megatron's that an expression reads."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == itself:
            name = f"{self._install.owner}.{node.attr}"
            return name if known.ever(name) else ""
        if itself is not None and (path := path_text(node) or "").startswith(f"{itself}.") and path.count(".") == 2:
            _, part, name = path.split(".")  # a field of what the object holds: `self.config.name`
            held = api.attribute_class(self._install.owner, part) or api.submodule(self._install.owner, part)
            return f"{held}.{name}" if held and known.ever(f"{held}.{name}") else ""
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            return ""
        at = (*home.model.at(node.lineno), node.lineno)
        base = home.expr(node.value, *at) if isinstance(node, ast.Attribute) else None
        if base is not None and base.kind == "module" and base.is_core and base.sure:
            return f"{base.name}.{node.attr}" if known.ever(f"{base.name}.{node.attr}") else ""  # type: ignore[union-attr]
        ref = home.expr(node, *at)
        if ref is None or not ref.is_core or ref.node is not None or not ref.sure or ref.kind not in _NAMED:
            return ""
        return ref.name

    def _is_bound(self, node: ast.expr, home: Resolver, itself: str | None) -> bool:
        if not isinstance(node, ast.Attribute) or (isinstance(node.value, ast.Name) and node.value.id == itself):
            return True
        base = home.expr(node.value, *home.model.at(node.lineno), node.lineno)
        return base is None or base.kind != "class"


def _put_into(node: ast.Call, place: Position) -> list[str]:
    """The keys that the function around a call puts into what it passes as `**rest`, whatever happens."""
    rest = {word.value.id for word in node.keywords if word.arg is None and isinstance(word.value, ast.Name)}
    function = place.scope.function
    body = getattr(function.node, "body", ()) if rest and function is not None else ()
    found: dict[str, None] = {}
    for statement in body if isinstance(body, list) else ():
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))]):
                found |= {key: None} if name in rest else {}
    return list(found)


def itself(function: FunctionNode | ast.Lambda) -> str | None:
    """The parameter that holds the object a method is called on."""
    first = (function.args.posonlyargs + function.args.args)[:1]
    return first[0].arg if first else None


def _imports_of(tree: ast.Module) -> list[ast.stmt]:
    """The imports that run with a file, also below `if` and `try`."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                waiting += node.orelse
            else:
                waiting += children(node)
    return found


def _imported(node: ast.AST, place: Position, when: str) -> Iterator[Demand]:
    if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or ""):
        module = node.module or ""
        for alias in node.names:
            yield Demand(f"{module}.{alias.name}" if alias.name != "*" else module, when, place, module=module)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if within(alias.name):
                yield Demand(alias.name, when, place, module=alias.name)


def _asks_first(node: ast.Call) -> bool:
    """`hasattr(x, "name")` and the like read nothing."""
    return isinstance(node.func, ast.Name) and node.func.id == "hasattr"
