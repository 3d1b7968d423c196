"""What a file of the scan is asked, and what an answer is: the thing an expression stands for."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeVar, cast

from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.sources.callers import Callers, argument, called_as
from mcore_unpatch.scanner.sources.effort import DEPTH
from mcore_unpatch.scanner.sources.files import Files
from mcore_unpatch.scanner.sources.nodes import first_line
from mcore_unpatch.scanner.sources.parsing import decode
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, ModuleModel, Scope, Site, path_text

_PASSED_ON = 6  # names and calls that a string is followed through, once it is a parameter

_MOST_JOINED = 1000  # strings that are put together from parts

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
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


class Modules(Files, ABC):
    """The files of one scan, each with what resolves its names."""

    @abstractmethod
    def find(self, importer: str, module: str, level: int) -> Resolver | None:
        """The module an import statement in `importer` names, if it is a file of the repository."""


class Resolver(ABC):
    """One file: what its parts are, and, in the classes made from this, what its names and expressions stand for."""

    def __init__(self, model: ModuleModel, project: Modules, related: bool) -> None:
        self.model, self.project = model, project
        # Whether the file has to do with Megatron at all: only then are well-known attribute names taken as evidence.
        self.related = related
        self._known: dict[Hashable, Ref | None] = {}
        self._above: dict[tuple[Scope, str, Block, int], Ref | None] = {}
        self.callers = Callers(model)
        self._facts: dict[Hashable, object] = {}

    def once(self, question: Callable[[N], T], node: N) -> T:
        """What a function says of a node of this tree, asked once."""
        key = (question, node)
        if key not in self._facts:
            self._facts[key] = question(node)
        return cast("T", self._facts[key])

    def forget(self) -> None:
        """Drop every answer: they refer to this module, and would keep it alive."""
        self._known.clear()
        self._above.clear()
        self._facts.clear()
        vars(self).pop("on_import", None)
        vars(self).pop("on_install", None)
        vars(self).pop("leaving", None)

    @cached_property
    def lines(self) -> list[str]:
        """The text of the file, line by line."""
        return decode(self.model.data).split("\n")

    @cached_property
    def execs(self) -> dict[Scope | None, Site]:
        """The first `exec` of each function."""
        found: dict[Scope | None, Site] = {}
        for site in self.model.calls:
            if isinstance(site.node, ast.Call) and path_text(site.node.func) in {"exec", "builtins.exec"}:
                found.setdefault(site.scope.function, site)
        return found

    @cached_property
    def statements_of(self) -> dict[Block, list[ast.stmt]]:
        """The statements of each block."""
        return {block: statements for statements, block, _ in self.model.blocks}

    @cached_property
    def leaving(self) -> dict[Block, list[ast.stmt]]:
        """Those of them that can keep what stands behind from being reached; kept by who asks for it."""
        return {}

    @cached_property
    def on_import(self) -> list[object]:
        """What importing the file asks of Megatron; kept by who asks for it."""
        return []

    @cached_property
    def on_install(self) -> dict[ast.AST, list[object]]:
        """The same for functions that install patches."""
        return {}

    def statement_of(self, call: ast.Call, block: Block) -> ast.stmt:
        """The statement of a block that a call stands in."""
        statements = self.statements_of[block]
        return statements[max(0, bisect_right(statements, call.lineno, key=first_line) - 1)]

    def calls_in(self, function: FunctionNode) -> list[Site]:
        """The calls within a function that may matter, those of functions inside it included."""
        return self._within(function, self._calls)

    def sites_in(self, function: FunctionNode) -> list[Site]:
        """The assignments within a function, those of functions inside it included."""
        return self._within(function, self._sites)

    @cached_property
    def _calls(self) -> list[Site]:
        return sorted(self.model.calls, key=_line)

    @cached_property
    def _sites(self) -> list[Site]:
        return sorted(self.model.sites, key=_line)

    def _within(self, function: FunctionNode, sites: list[Site]) -> list[Site]:
        first = bisect_left(sites, function.lineno, key=_line)
        last = bisect_right(sites, function.end_lineno or 0, key=_line)
        self.project.effort.spend(last - first)
        return sites[first:last]

    def marks_in(self, function: FunctionNode) -> frozenset[tuple[str | None, str]]:
        """What a function writes, as object and attribute: the marks it leaves on an object are not there before.

        `new.mine = True` is a mark on what is put in place, which is asked for under another name: None stands for it.
        """
        found: set[tuple[str | None, str]] = set()
        for site in self.sites_in(function):
            if isinstance(site.target, ast.Attribute):
                found |= _marks(site.target.value, [site.target.attr], site.value)
        for site in self.calls_in(function):
            if isinstance(site.node, ast.Call) and path_text(site.node.func) == "setattr" and len(site.node.args) == 3:
                subject, name, value = site.node.args
                found |= _marks(subject, self.strings(name, site.scope, site.block, site.node.lineno), value)
        return frozenset(found)

    def core_reads(self, statement: ast.stmt) -> list[str]:
        """What a statement reads of Megatron's modules and classes, as `module.name` and `Class.name`."""
        scope, block = self.model.at(statement.lineno)
        found = []
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                base = self.expr(node.value, scope, block, statement.lineno)
                if base is not None and base.is_core and base.kind in {"module", "class"} and base.node is None:
                    found.append(f"{base.name}.{node.attr}")
        return found

    # --- strings -----------------------------------------------------------------------------------------------

    def string(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> str | None:
        """The one string an expression is known to be, or None."""
        values = self.strings(node, scope, block, line)
        return values[0] if len(values) == 1 else None

    def strings(self, node: ast.AST | None, scope: Scope, block: Block, line: int, steps: int = DEPTH) -> list[str]:
        """Every string an expression is known to take: a constant, by whatever names, a loop over constants."""
        at = (scope, block, line, steps - 1)
        if steps <= 0:
            return []
        match node:
            case ast.Constant(value=value):
                return [value] if isinstance(value, str) else []
            case ast.JoinedStr(values=parts):
                return self._joined([p.value if isinstance(p, ast.FormattedValue) else p for p in parts], *at)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self._joined([left, right], *at)
            case ast.Attribute(attr="__name__", value=named):
                ref = self.expr(named, scope, block, line)
                leaf = ref.name.rpartition(".")[2] if ref and ref.is_core else getattr(ref and ref.node, "name", "")
                return [leaf] if leaf else []
            case ast.Attribute(attr="__module__", value=named):
                ref = self.expr(named, scope, block, line)
                return [ref.name.rpartition(".")[0]] if ref and ref.is_core and ref.kind == "class" else []
            case ast.Call(func=ast.Attribute(attr="split", value=whole), args=[ast.Constant(value=".")]):
                return self.strings(whole, scope, block, line, steps - 1)  # cut where the last part is taken
            case ast.Subscript(value=parts, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
                paths = self.strings(parts, scope, block, line, steps - 1)
                return [path.rpartition(".")[2] for path in paths]
            case ast.Name(id=name):
                home = next((home for home in scope.chain() if name in home.bindings), None)
                return self._strings_of(name, home, steps - 1) if home is not None else []
        return []

    def _joined(self, parts: list[ast.expr], *at: Any) -> list[str]:
        """The strings that the strings of some expressions give, one behind the other."""
        several = [self.strings(part, *at) for part in parts]
        if prod(map(len, several)) > _MOST_JOINED:
            return []
        self.project.effort.spend(len(several))
        return ["".join(one) for one in product(*several)]

    def _strings_of(self, name: str, scope: Scope, steps: int) -> list[str]:
        """The strings that a name of a scope is known to take."""
        for binding in reversed(scope.bindings[name]):
            self.project.effort.spend()
            match binding.kind:
                case "value":
                    return self.strings(binding.node, scope, binding.block, binding.line, steps)
                case "item":
                    elements = _elements(binding.node) or self._constant_elements(binding.node, scope)
                    self.project.effort.spend(len(elements))
                    return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
                case "from":
                    assert isinstance(binding.node, ast.ImportFrom)
                    home = self.project.find(self.model.path, binding.node.module or "", binding.node.level)
                    known = home is not None and home is not self and binding.detail in home.model.scope.bindings
                    return home._strings_of(binding.detail, home.model.scope, steps) if home and known else []
                case "param":
                    return self._strings_passed(name, scope, steps)
        return []

    def _strings_passed(self, name: str, scope: Scope, steps: int) -> list[str]:
        """What this module's own calls pass for a parameter."""
        function, outer = scope.node, scope.parent
        assert isinstance(function, FunctionNode)
        is_method = outer is not None and outer.kind == "class"
        found: dict[str, None] = {}
        steps = min(steps, _PASSED_ON)
        for call, caller, block in (
            self.callers.of(called_as(function, outer), self.project.effort) if steps > 0 else ()
        ):
            if (value := argument(call, function, name, is_method)) is not None:
                found |= dict.fromkeys(self.strings(value, caller, block, call.lineno, steps - 1))
        return list(found)

    def _constant_elements(self, node: ast.AST | None, scope: Scope) -> list[ast.expr]:
        if isinstance(node, ast.Name):
            for home in scope.chain():
                for binding in home.bindings.get(node.id, []):
                    if elements := _elements(binding.node):
                        return elements
        return []

    # --- what names and expressions stand for: `bindings` and `expressions` ---------------------------------------

    @abstractmethod
    def expr(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """What `node`, used at `line`, stands for; None when nothing is known."""

    @abstractmethod
    def bound(self, binding: Binding, scope: Scope) -> Ref | None:
        """What a binding gives."""

    @abstractmethod
    def annotated(self, node: ast.expr, scope: Scope, line: int) -> Ref | None:
        """An instance of the class an annotation names."""

    @abstractmethod
    def export(self, name: str) -> Ref | None:
        """What another module gets when it imports `name` from this one."""

    @abstractmethod
    def exported_class(self, name: str) -> Ref | None:
        """The first class of a collection that another module gets when it imports `name` from this one."""

    @abstractmethod
    def member(self, base: Ref, name: str) -> Ref | None:
        """What `base.name` stands for."""

    @abstractmethod
    def own_class(self, node: ast.ClassDef) -> Ref:
        """A class of this module: known by the first of its bases that leads to Megatron Core."""

    @abstractmethod
    def own_method(self, node: ast.ClassDef, name: str) -> Ref | None:
        """A method that a class of this module, or one of the repository's own bases of it, defines."""

    @abstractmethod
    def own_attribute(self, node: ast.AST, name: str) -> Ref | None:
        """`self.name` of a class of this module: what its methods assign, or what the class body annotates."""

    @abstractmethod
    def returned(self, node: ast.AST | None) -> Ref | None:
        """What a function of this module returns: its annotation, else the first return that resolves."""


def _elements(node: ast.AST | None) -> list[ast.expr]:
    """What a loop gets from a collection that is written out; of a dict the keys."""
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []


def _line(site: Site) -> int:
    return site.node.lineno


def _marks(subject: ast.expr, names: list[str], value: ast.expr | None) -> set[tuple[str | None, str]]:
    flag = isinstance(subject, ast.Name) and isinstance(value, ast.Constant) and value.value is True
    return {(text, name) for name in names for text in (path_text(subject) or "", None)[: 1 + flag]}
