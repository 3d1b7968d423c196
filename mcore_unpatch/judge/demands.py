"""What code asks of Megatron: each import, attribute and call, where it stands, and what has to hold for it to run."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.keywords import passed_on, put_into
from mcore_unpatch.judge.meaning import Meant, built, class_around, ever, is_super, own_member, picked, written
from mcore_unpatch.judge.mocks import makes_fakes, mocked, replaced_in
from mcore_unpatch.judge.reached import Tests
from mcore_unpatch.library.fact import Call
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.usage import form
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.versions import RELEASES, within
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.annotations import ANNOTATED
from mcore_unpatch.scanner.names.bindings import own_class
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.nodes import children
from mcore_unpatch.scanner.sources.scopes import FunctionNode, path_text

IMPORT, INSTALL, CALL = "import", "install", "call"  # when it runs
_NAMED = {"function", "class", "value", "module"}
_MOST_HELPERS = 30
_DEEPEST = 3
_LEAVES = (ast.Name, ast.Constant)  # ask nothing themselves
# Of the statements of a file: what runs later, and what is read for itself.
_APART = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom


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
    also: tuple[str, ...] = ()  # further names, where several imports bind what is used
    node: ast.AST | None = field(default=None, repr=False)
    added: frozenset[str] = frozenset()  # keywords that a subclass in the repository takes itself

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.at.line

    @property
    def path(self) -> str:
        """The file it stands in."""
        return self.at.home.model.path

    def on(self, model: Model) -> Demand:
        """The demand under the name that a release has, where several imports bind it."""
        name = next((other for other in self.also if known.holds(model, other)), None)
        return replace(self, name=name) if name is not None and not known.holds(model, self.name) else self

    def runs_on(self, model: Model, exception: str) -> bool:
        """Whether it is reached on a release, and nobody around it expects the exception."""
        return not reached.is_caught(self.at.block, exception) and reached.on(model, self.at, self.tests)


class Demands:
    """What code stands on: what importing a file needs, what a function does.

    owner: the class that the object named `itself` is of. follow: read the helpers too that the code calls.
    """

    def __init__(self, owner: str = "", follow: bool = True) -> None:
        self._owner, self._follow = owner, follow
        self._seen: set[int] = set()

    def of_import(self, home: Resolver) -> list[Demand]:
        """What the import of a file needs: its own imports, and what its statements read."""
        return home.kept(("on import", self._follow), lambda: [*self._of_import(home)])

    def _of_import(self, home: Resolver) -> Iterator[Demand]:
        for node in home.once(_imports_of, home.model.tree):
            place = home.on_line(node.lineno)
            if place.scope.kind == "module":
                yield from _imported(node, place, IMPORT)
        for statement in home.model.tree.body:
            if not isinstance(statement, _APART) and not is_for_types(getattr(statement, "test", None)):
                yield from self.of_code(statement, home, IMPORT, inner=False)

    def of_code(
        self, code: ast.AST, home: Resolver, when: str, inner: bool = True, itself: str | None = None, depth: int = 0
    ) -> Iterator[Demand]:
        """What a piece of code does, with helpers that it calls; `itself` names the patched object."""
        if id(code) in self._seen or (depth and len(self._seen) > _MOST_HELPERS):
            return
        if depth:
            self._seen.add(id(code))
        waiting: deque[tuple[ast.AST, Tests, int]] = deque((node, (), 0) for node in children(code))
        while waiting:
            node, tests, unpacked = waiting.popleft()
            if isinstance(node, _LEAVES):
                continue
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef() if not inner:
                    waiting += [(decorator, tests, 0) for decorator in getattr(node, "decorator_list", ())]
                    continue
                case ast.Import() | ast.ImportFrom():
                    yield from _imported(node, home.on_line(node.lineno), when)
                case ast.If(test=test, orelse=orelse) if is_for_types(test):
                    waiting += [(item, tests, 0) for item in orelse]
                    continue
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
                case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name))]):
                    read = ast.copy_location(ast.Attribute(of, name, ast.Load()), node)
                    waiting.append((read, tests, 0))
                    continue
                case ast.Call():
                    if (replaced := mocked(node)) is not None:
                        waiting.append((replaced, tests, 0))
                    meant = self._meant(node.func, home, itself) or picked(node.func, home)
                    yield from self._called(node, meant, home, when, tests, unpacked, depth)
                    if isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                        continue  # `hasattr(x, "name")` reads nothing
                    waiting += [(one, tests, 0) for one in (*node.args, *(word.value for word in node.keywords))]
                    if meant is None:
                        waiting.append((node.func, tests, 0))
                    else:
                        yield from self._prefixes(node.func, meant, home, when, tests)
                    continue
                case ast.Subscript(value=of, slice=ast.Constant(value=str(name))):
                    if (meant := self._meant(of, home, itself)) is not None and is_enum(meant.names[0]):
                        member = ever(f"{meant.names[0]}.{name}", through=True)
                        if member is not None:
                            yield _asked(member, when, home.on_line(node.lineno), node, tests)
                case ast.Attribute() if isinstance(node.ctx, ast.Load):
                    if (meant := self._meant(node, home, itself)) is not None:
                        yield from self._prefixes(node, meant, home, when, tests)
                        yield _asked(meant, when, home.on_line(node.lineno), node, tests)
                        if meant.parts or not isinstance(node.value, ast.Attribute):
                            continue  # `self.a.b`: what is read of the object on the way counts too
            waiting += [(child, tests, 0) for child in children(node)]

    def _called(
        self, node: ast.Call, meant: Meant | None, home: Resolver, when: str, tests: Tests, unpacked: int, depth: int
    ) -> Iterator[Demand]:
        place = home.on_line(node.lineno)
        if meant is not None:
            call = form(node, unpacked)
            if put := put_into(node, place):
                call = replace(call, keywords=(*call.keywords, *(key for key in put if key not in call.keywords)))
            faked = meant.names[0].rpartition(".")[2] in home.once(replaced_in, home.model.tree)
            yield replace(_asked(meant, when, place, node, tests), call=None if faked else call)
            return
        for given, part in self._in_parts(node, place, home):
            yield replace(_asked(given, when, place, node, tests), call=part)
        ref = place.expr(node.func) if self._follow and depth < _DEEPEST else None
        if ref is not None and ref.home is not None and ref.kind == "local-function":
            if isinstance(ref.node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self.of_code(ref.node, ref.home, when, when == CALL, None, depth + 1)

    def _in_parts(self, node: ast.Call, place: Position, home: Resolver) -> Iterator[tuple[Meant, Call]]:
        """What gets some of its arguments: `partial(f, x=1)`, `replace(config, x=1)`, `ours(x=1)` that passes it on."""
        keywords = tuple(word.arg for word in node.keywords if word.arg)
        name = place.text(node.func) if keywords and isinstance(node.func, ast.Name | ast.Attribute) else ""
        if name == "functools.partial" and node.args:
            meant = self._meant(node.args[0], home, None)
            if meant is not None:
                yield meant, Call(len(node.args) - 1, keywords, star=True, double_star=True)
        elif name in ("dataclasses.replace", "copy.replace") and node.args:
            held = place.expr(node.args[0])
            if held is not None and held.kind == "instance" and held.is_core and held.sure and held.node is None:
                newest = known.model(RELEASES[-1])  # what a subclass has, the object may be of
                below = newest.derived.get(held.name, ())
                own = tuple(key for key in keywords if not any(newest.find(f"{part}.{key}") for part in below))
                yield Meant((held.name,)), Call(0, own, star=True, double_star=True)
        elif name and (ref := place.expr(node.func)) is not None and ref.kind == "local-function":
            for meant, rest in passed_on(ref, keywords):
                yield meant, Call(0, rest, star=True, double_star=True)

    def _prefixes(self, node: ast.expr, meant: Meant, home: Resolver, when: str, tests: Tests) -> Iterator[Demand]:
        """What `module.Class.method` reads on the way."""
        for cut in range(meant.parts - 1, 0, -1):
            names = tuple(name.rsplit(".", cut)[0] for name in meant.names)
            yield Demand(names[0], when, home.on_line(node.lineno), tests=tests, through_class=True, also=names[1:])

    def _meant(self, node: ast.expr, home: Resolver, itself: str | None) -> Meant | None:
        """What of Megatron's an expression reads."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == itself:
            return ever(f"{self._owner}.{node.attr}")
        if itself is not None and (path := path_text(node) or "").startswith(f"{itself}.") and path.count(".") == 2:
            _, part, name = path.split(".")  # a field of what the object holds: `self.config.name`
            held = api.attribute_class(self._owner, part) or api.submodule(self._owner, part)
            return ever(f"{held}.{name}") if held else None
        if isinstance(node, ast.Attribute) and is_super(node.value):
            owner = class_around(node, home)
            if above := _above(node.value, owner, home):
                return ever(f"{above}.{node.attr}") if within(above) else None
            ref = own_class(owner, home) if owner is not None else None
            direct = ref is not None and ref.is_core and ref.sure and not own_member(home, owner, node.attr, False)
            return ever(f"{ref.name}.{node.attr}") if ref is not None and direct else None
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            return None
        return written(node, home) or self._resolved(node, home)

    def _resolved(self, node: ast.Attribute | ast.Name, home: Resolver) -> Meant | None:
        at = home.on_line(node.lineno)
        base = at.expr(node.value) if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and base is not None and base.is_core and base.sure and not base.possible:
            if base.kind == "module":
                return ever(f"{base.name}.{node.attr}", through=True)
            if base.kind == "instance" and not base.via and not base.also:
                if base.why == ANNOTATED and is_test(home.model.path) and makes_fakes(home.model.data):
                    return None  # whatever stands there: a test may pass a fake
                own = isinstance(base.node, ast.ClassDef) and base.home is not None
                if own and own_member(base.home, base.node, node.attr, True):  # type: ignore[arg-type]
                    return None
                return ever(f"{base.name}.{node.attr}")
        ref = at.expr(node)
        if ref is None or not ref.is_core or not ref.sure or ref.kind not in _NAMED:
            return None
        if ref.node is not None:
            return built(ref) if isinstance(node, ast.Name) and node.id != "cls" else None
        unbound = not ref.bound if base is None else base.kind == "class"
        # `from module import *` does not fail without a name.
        bound = not at.home.model.stars or any(getattr(node, "id", "") in scope.bindings for scope in at.scope.chain())
        return Meant((ref.name,), isinstance(node, ast.Name) and bound, unbound)


def _above(node: ast.expr, owner: ast.ClassDef | None, home: Resolver) -> str:
    """What `super(Class, self)` reads of, where that is another class than the one around: what it derives from."""
    first = next(iter(getattr(node, "args", ())), None)
    ref = home.on_line(node.lineno).expr(first) if first is not None else None
    if first is None or (ref is not None and owner is not None and ref.node is owner):
        return ""
    return (*api.ancestry(ref.name), "?")[1] if ref is not None and ref.is_core and ref.node is None else "?"


def _asked(meant: Meant, when: str, place: Position, node: ast.expr, tests: Tests) -> Demand:
    """The demand that reading a name is."""
    name, *also = meant.names
    return Demand(
        name, when, place, None, "", tests, meant.by_name, meant.through_class, tuple(also), node, meant.added
    )


def is_enum(name: str) -> bool:
    """Whether a class is an enumeration."""
    return any(base.rpartition(".")[2].endswith("Enum") for base in api.ancestry(name))


def itself(function: FunctionNode | ast.Lambda) -> str | None:
    """The parameter that holds the object a method is called on."""
    first = (function.args.posonlyargs + function.args.args)[:1]
    return first[0].arg if first else None


def _imports_of(tree: ast.Module) -> list[ast.stmt]:
    """The imports that run with a file, also below `if` and `try`."""
    statements: list[ast.stmt] = []
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            if isinstance(node, ast.If) and is_for_types(node.test):
                waiting += node.orelse
            else:
                waiting += children(node)
    return statements


def is_for_types(test: ast.expr | None) -> bool:
    """`if TYPE_CHECKING:`: what stands there never runs."""
    return test is not None and (path_text(test) or "").rpartition(".")[2] == "TYPE_CHECKING"


def _imported(node: ast.AST, place: Position, when: str) -> Iterator[Demand]:
    if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or ""):
        module = node.module or ""
        for alias in node.names:
            name = f"{module}.{alias.name}" if alias.name != "*" else module
            yield Demand(name, when, place, module=module, node=node)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if within(alias.name):
                yield Demand(alias.name, when, place, module=alias.name, node=node)
