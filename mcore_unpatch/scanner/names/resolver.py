"""One file of the repository: its parts, and the one question that is asked of them: what does this stand for here?"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.records import record, replace
from mcore_unpatch.scanner.sources.callers import Callers
from mcore_unpatch.scanner.sources.effort import DEPTH
from mcore_unpatch.scanner.sources.files import Files
from mcore_unpatch.scanner.sources.nodes import first_line, walk
from mcore_unpatch.scanner.sources.parsing import decode
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, ModuleModel, Scope, Site, path_text

N = TypeVar("N")
T = TypeVar("T")


@record
class Ref:
    """A resolved expression.

    kind: module, class, instance, list (of instances of `name`), function or value of Megatron Core; or, with an empty
    or foreign `name`, local-module, local-function, and class / instance of a class of the repository's own.
    name: the dotted definition in Megatron Core; for a subclass that the repository defines, the Megatron class.
    """

    kind: str
    name: str = ""
    sure: bool = True
    why: str = ""
    home: Resolver | None = None  # where `node` stands, for things the repository defines
    node: ast.AST | None = None
    via: str = ""  # the attribute path a submodule was reached by, where it names the target better than its class
    also: tuple[str, ...] = ()  # further classes a loop variable takes
    possible: bool = False  # the least sure: told by a method's name alone
    bound: bool = False  # a method reached through an object

    def but(self, **changes: object) -> Ref:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def is_core(self) -> bool:
        """Whether this is something of Megatron's, or an instance or subclass of it."""
        return within(self.name)

    def has(self, name: str) -> bool:
        """Whether this module of Megatron's, or else the class, has a name, that can be called if it is a class's."""
        return api.in_module(self.name, name) if self.kind == "module" else api.has_callable(self.name, name)


class Position(NamedTuple):
    """Where an expression stands; `given` are the arguments of the call that is looked into."""

    home: Resolver
    scope: Scope
    block: Block
    line: int
    given: Mapping[str, object] | None = None

    def expr(self, node: ast.AST | None) -> Ref | None:
        """What an expression that is used here stands for; None when nothing is known."""
        return self.home.expr(node, self)

    def text(self, node: ast.expr) -> str:
        """A path as it is written; what is another library's by its own name, whatever it was imported as."""
        ref = self.expr(node)
        return ref.name if ref is not None and ref.kind == "external" else path_text(node) or ""


Handler = Callable[[Any, Position], Ref | None]


class Resolver:
    """One file: what its parts are, and, by `kinds` of expression, what they stand for.

    find: the file of the repository that an import names, by who imports it, the module and the dots before it.
    """

    def __init__(
        self,
        model: ModuleModel,
        project: Files,
        find: Callable[[str, str, int], Resolver | None],
        kinds: Mapping[type, Handler],
    ) -> None:
        self.model, self.project = model, project
        # Whether the file has to do with Megatron at all: only then are well-known attribute names taken as evidence.
        self.related = project.related(model.path)
        self._find, self._kinds = find, kinds
        self._answers: dict[Hashable, Ref | None] = {}
        self.above: dict[tuple[Scope, str, Block, int], Ref | None] = {}  # what names are to the lines below a binding
        self._facts: dict[Hashable, object] = {}
        self.callers = Callers(model)

    def expr(self, node: ast.AST | None, at: Position) -> Ref | None:
        """What `node`, used at a position of this file, stands for; None when nothing is known."""
        handler = self._kinds.get(type(node))
        return self.answer((node, *at[1:4]), handler, node, at) if handler is not None else None

    def answer(self, key: Hashable, ask: Callable[..., Ref | None], *arguments: object) -> Ref | None:
        """The answer to a question, asked once; cycles and endless chains end here."""
        effort = self.project.effort
        effort.spend()
        if key in self._answers:
            return self._answers[key]
        open_key = (self, key)
        if open_key in effort.passing or effort.depth > DEPTH:
            effort.cuts += 1
            return effort.passing.get(open_key)
        cuts = effort.cuts
        effort.passing[open_key] = None  # what a cycle gets to see
        effort.depth += 1
        try:
            ref = ask(*arguments)
        finally:
            effort.depth -= 1
            if not effort.depth:
                effort.passing.clear()
        if effort.cuts == cuts or not effort.depth:
            self._answers[key] = ref
            effort.passing.pop(open_key, None)
        else:
            effort.passing[open_key] = ref
        return ref

    def once(self, question: Callable[[N], T], node: N) -> T:
        """What a function says of a node of this tree, asked once."""
        return self.kept((question, node), lambda: question(node))

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something about this file that is made once."""
        if key not in self._facts:
            self._facts[key] = make()
        return cast("T", self._facts[key])

    def forget(self) -> None:
        """Drop every answer: they refer to this module, and would keep it alive."""
        self._answers.clear()
        self.above.clear()
        self._facts.clear()

    # --- positions ---------------------------------------------------------------------------------------------

    def at(self, site: Site) -> Position:
        """Where a statement or a call stands."""
        return Position(self, site.scope, site.block, site.node.lineno)

    def on_line(self, line: int) -> Position:
        """The innermost position on a line."""
        return Position(self, *self.model.at(line), line)

    def in_body(self, scope: Scope, line: int) -> Position:
        """A position in the body of a scope itself, as the decorators and bases of what it defines have."""
        return Position(self, scope, scope.block, line)

    def at_binding(self, binding: Binding, scope: Scope) -> Position:
        """Where a name gets its value."""
        return Position(self, scope, binding.block, binding.line)

    def calls_of(self, name: str) -> Iterator[tuple[ast.Call, Position]]:
        """The calls of this file whose function is written `name` or `something.name`."""
        for call, scope, block in self.callers.of(name, self.project.effort):
            yield call, Position(self, scope, block, call.lineno)

    def returns_of(self, function: ast.AST) -> list[tuple[ast.Return, Position]]:
        """The return statements of a function of this file."""
        scope = self.model.functions.get(function)
        returns = self.model.returns.get(function, []) if scope is not None else []
        return [(node, Position(self, cast("Scope", scope), block, node.lineno)) for node, block in returns]

    def from_import(self, node: ast.ImportFrom) -> Resolver | None:
        """The other file of the repository that an import statement of this one names."""
        home = self.find(node.module or "", node.level)
        return home if home is not self else None

    def find(self, module: str, level: int = 0) -> Resolver | None:
        """The file of the repository that an import statement here would name."""
        return self._find(self.model.path, module, level)

    def outside(self, node: FunctionNode | ast.ClassDef) -> Position:
        """Where the head of a definition stands: its decorators, annotations, defaults and bases."""
        scope = (self.model.functions.get(node) or self.model.classes[node]).parent  # type: ignore[index]
        assert scope is not None
        return self.in_body(scope, node.lineno)

    def bases(self, node: ast.ClassDef) -> list[Ref]:
        """The classes that a class derives from, as far as they are known."""
        refs = map(self.outside(node).expr, node.bases)
        return [ref for ref in refs if ref is not None and ref.kind == "class"]

    # --- parts of the file -------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[str]:
        """The text of the file, line by line."""
        return decode(self.model.data).split("\n")

    @cached_property
    def execs(self) -> dict[Scope | None, Site]:
        """The first `exec` of each function."""
        sites: dict[Scope | None, Site] = {}
        for site in self.model.calls:
            if isinstance(site.node, ast.Call) and path_text(site.node.func) in {"exec", "builtins.exec"}:
                sites.setdefault(site.scope.function, site)
        return sites

    @cached_property
    def statements_of(self) -> dict[Block, list[ast.stmt]]:
        """The statements of each block."""
        return {block: statements for statements, block, _ in self.model.blocks}

    def statement_of(self, call: ast.Call, block: Block) -> ast.stmt:
        """The statement of a block that a call stands in."""
        statements = self.statements_of[block]
        return statements[max(0, bisect_right(statements, call.lineno, key=first_line) - 1)]

    @cached_property
    def _sites(self) -> list[Site]:
        return sorted((*self.model.sites, *self.model.calls), key=_line)

    def sites_in(self, function: FunctionNode) -> list[Site]:
        """The assignments within a function and the calls that may matter, those of functions inside it included."""
        sites = self._sites
        first = bisect_left(sites, function.lineno, key=_line)
        last = bisect_right(sites, function.end_lineno or 0, key=_line)
        self.project.effort.spend(last - first)
        return sites[first:last]

    def core_reads(self, statement: ast.stmt) -> list[str]:
        """What a statement reads of Megatron's modules and classes, as `module.name` and `Class.name`."""
        at = self.on_line(statement.lineno)
        reads = []
        for node in walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                base = at.expr(node.value)
                if base is not None and base.is_core and base.kind in {"module", "class"} and base.node is None:
                    reads.append(f"{base.name}.{node.attr}")
        return reads


def _line(site: Site) -> int:
    return site.node.lineno
