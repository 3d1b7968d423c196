"""One patch as the judge sees it: what it replaces, with what, and what that reaches and asks of Megatron."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TypeVar

from mcore_unpatch.judge.asked import is_replaced, raised
from mcore_unpatch.judge.callers import callers
from mcore_unpatch.judge.demands import CALL, INSTALL, Demand, Demands, itself
from mcore_unpatch.judge.originals import calls_of_original, is_given_original, reaches_original, reads_by_name
from mcore_unpatch.judge.statement import Statement
from mcore_unpatch.library.fact import Parameters, parameters, without_self
from mcore_unpatch.library.model import EXACT, Model, Usage
from mcore_unpatch.library.syntax import Function, last_attribute, leaf_of, parameters_of
from mcore_unpatch.library.usage import form
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import COMPILED
from mcore_unpatch.scanner.names.bindings import derives
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.related import replacement
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.evidence import is_class_of_object
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Block, FunctionNode, path_text

T = TypeVar("T")

_MOST_STEPS = 200_000  # for what one patch asks of Megatron
_PARTIAL = ("partial", "partialmethod")
_OF_A_CLASS = ("class-attr", "setattr", "string-target")
# Decorators that leave the parameters of a function as they are.
_TRANSPARENT = {
    *("staticmethod", "no_grad", "inference_mode", "enable_grad", "wraps", "compile", "jit_fuser", "override"),
    "abstractmethod",
}


class Case:
    """One patch: what it replaces, with what, and what that reaches."""

    def __init__(self, install: Install, resolver: Resolver, shapes: Mapping[str, str] | None = None) -> None:
        self.install, self.resolver = install, resolver
        self._shapes = shapes or {}  # of the patches of the repository that are known, by target
        self.new: Replacement = replacement.find(install, resolver)
        self._beside: dict[Block, list[Case]] = {}  # the patches of its file by the block that they stand in
        self._replaced: dict[Block, set[str]] = {}  # what is found of a block, for all cases of a file

    @classmethod
    def all_of(cls, installs: Iterable[Install], resolver: Resolver, shapes: Mapping[str, str]) -> list[Case]:
        """The patches of one file, each with the others beside it."""
        cases = [cls(install, resolver, shapes) for install in installs]
        beside: dict[Block, list[Case]] = {}
        for case in cases:
            beside.setdefault(case.install.site.block, []).append(case)
            case._beside, case._replaced = beside, cases[0]._replaced
        return cases

    def part(self) -> None:
        """Forget the patches beside it: each knows the others, a cycle that would hold the tree of the file."""
        self._beside.clear()

    @property
    def demands(self) -> list[Demand]:
        """What it asks of Megatron: on import, when it is installed, when it is called."""
        return [demand for some in self._demands for demand in some]

    def raised_on(self, model: Model) -> Iterator[tuple[Demand, list[Statement]]]:
        """What a release raises where something is asked of it, in the same order."""
        for some in filter(None, self._demands):
            raised = self._of_all(some, (_raising, model), lambda some: _raising(some, model))
            yield from (pair for pair in raised if self._hinders(pair[0]))

    def _hinders(self, demand: Demand) -> bool:
        """Whether what is asked for comes before the patch, on the way to it; of helpers that is not told apart."""
        site, asked = self.install.site, demand.at.scope.function
        if demand.when != INSTALL or demand.at.home is not self.resolver:
            return True
        last, block = site.statement.end_lineno or site.node.lineno, self.resolver.at(site).block
        for scope in site.scope.outwards():
            if scope is asked:
                return demand.line <= last and block.within(demand.at.block)
            if scope.kind == "function":  # on, out to where it is defined
                last, block = getattr(scope.node, "lineno", 0), scope.block.parent or block
        return True

    def _of_all(self, some: list[Demand], key: Hashable, look: Callable[[list[Demand]], T]) -> T:
        """What is seen in demands, which many patches of a file may share, looked at once."""
        return self.resolver.kept((id(some), key), lambda: (some, look(some)))[1]  # held, so that its id stays its own

    @cached_property
    def _demands(self) -> list[list[Demand]]:
        """All of them, list by list: most are shared with other patches.

        The budget of the file pays for finding patches: where it would not last, less is said of this one.
        """
        try:
            with self.resolver.project.effort.at_most(_MOST_STEPS):
                return self._find_demands()
        except Exhausted:
            return []

    def _find_demands(self) -> list[list[Demand]]:
        asks = Demands(self.install.owner)
        homes = {id(home): home for home in (self.resolver, self.new.home) if home is not None}
        found = [asks.of_import(home) for home in homes.values()]
        installers = [scope for scope in self.install.site.scope.chain() if scope.function is scope]
        # Many patches may stand in one function.
        found += [self.resolver.kept((INSTALL, one.node), partial(self._of_installer, one.node)) for one in installers]
        read = [
            Demand(self.install.target, INSTALL, self.resolver.on_line(node.lineno))
            for node in (walk(self.install.value) if isinstance(self.install.value, ast.Call) else ())
            if isinstance(node, ast.Call) and len(node.args) == 2 and reads_by_name(node, self.install)
        ]
        functions = [
            (function, home, itself(function) if self.is_bound or function is not self.new.function else None)
            for function, home in self.functions
        ]
        found += [read, self.resolver.kept((CALL, self.install.owner, *functions), lambda: [
            demand for code, home, own in functions for demand in asks.of_code(code, home, CALL, itself=own)
        ])]  # fmt: skip
        if self.original_calls:
            known_calls = [self._of_all(some, _nodes, _nodes) for some in found]
            new = [node for node in self.original_calls if not any(id(node) in some for some in known_calls)]
            found.append([self._of_original(node) for node in new])
        return found

    def _of_installer(self, code: ast.AST) -> list[Demand]:
        return [*Demands().of_code(code, self.resolver, INSTALL, inner=False)]

    def calls_ours(self, demand: Demand, model: Model) -> bool:
        """Whether a call of the replacement reaches another function of the repository, put in place of Megatron's."""
        if self.is_alone and demand.name == self.install.target and self._shapes.get(demand.name) in _OF_A_CLASS:
            return True  # what the object had is what was put on its class
        return is_replaced(demand.on(model), model, self._shapes, self.install.target)

    def target_on(self, model: Model) -> str:
        """What is replaced, by the name that a release has for it."""
        return known.name_on(model, self.install.target)

    def sets_what_is_there(self, model: Model) -> bool:
        """Whether a release has under that name the very module that is put there; others may be one of several."""
        value = self.install.value if isinstance(self.install.value, ast.Name | ast.Attribute) else None
        ref = self.resolver.at(self.install.site).expr(value) if not self.is_alone else None
        if ref is None or ref.home is not None or not (ref.is_core and ref.sure) or ref.kind != "module":
            return False
        there, given = model.find(self.target_on(model)), model.find(ref.name)
        return there is not None and given is not None and there.name == given.name

    def callers(self, model: Model) -> list[Usage]:
        """Who calls it in the library, of those that can have what is patched here."""
        every = callers(model, self.target_on(model))
        if (holder := self._holder) is not None:
            # Of a class of the repository's own the library has no subclass.
            below = model.derived.get(holder.name, ()) if holder.home is None else ()
            family = {*model.lineage(holder.name), *below}
            own = [usage for usage in every if usage.place.rpartition(".")[0] in family]
            every = own if own or self._is_built_here else every
        return [usage for usage in every if usage.place not in self._replaced_beside]

    @cached_property
    def _holder(self) -> Ref | None:
        """What holds the one object that is patched, as a model its decoder, where that is one of Megatron's."""
        base = self.install.base
        if not self.is_alone or not isinstance(base, ast.Attribute):
            return None
        ref = self.resolver.at(self.install.site).expr(base.value)
        return ref if ref is not None and ref.kind == "instance" and ref.is_core and not ref.possible else None

    @property
    def _is_built_here(self) -> bool:
        """Whether a class of the repository builds the object for itself: nobody else in the library has it then."""
        assert self.install.base is not None
        made = self.install.site.scope.bindings.get(path_text(self.install.base) or "", ())
        values = [binding.node for binding in made if binding.kind == "value"]
        return bool(values) and all(isinstance(value, ast.Call) for value in values)

    @property
    def _replaced_beside(self) -> set[str]:
        """Functions of Megatron's that no longer run where this is in place: the same code replaces them all."""
        site = self.install.site
        if site.block not in self._replaced:
            together = (other for block in site.block.outwards() for other in self._beside.get(block, ()))
            self._replaced[site.block] = {
                other.install.target
                for other in together
                if other.install.site.scope is site.scope
                and other.new.function is not None
                and not other.is_alone
                and not other.reaches_original
            }
        return self._replaced[site.block]

    @cached_property
    def original_calls(self) -> list[ast.Call]:
        """Where the replacement calls what it replaced."""
        return calls_of_original(self.install, self.new)

    def _of_original(self, node: ast.Call) -> Demand:
        """A call of what was replaced, by whatever name: `original(self, ...)`, `self._old(...)`."""
        assert self.new.function is not None
        passed = getattr(node.args[0], "id", "") if node.args else ""
        at = (self.new.home or self.resolver).on_line(node.lineno)
        unbound = isinstance(node.func, ast.Attribute) and is_class_of_object(node.func.value)  # type(self).name(other)
        given = unbound or (self.is_bound and bool(passed) and passed == itself(self.new.function))
        return Demand(self.install.target, CALL, at, form(node), by_name=True, through_class=given, node=node)

    @cached_property
    def functions(self) -> list[tuple[FunctionNode | ast.Lambda, Resolver]]:
        """The code that runs in place of Megatron's: a function, or the methods of a class."""
        home = self.new.home or self.resolver
        if self.new.function is not None:
            return [(self.new.function, home)]
        node, home = self.own_class
        body = node.body if node is not None else ()
        return [(item, home) for item in body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def own_class(self) -> tuple[ast.ClassDef | None, Resolver]:
        """The class of the repository that takes the place of one of Megatron's."""
        value, site = self.install.value, self.install.site
        node, home = None, self.resolver
        if self.install.named:
            node, home = replacement.named_definition(self.install, self.resolver)
        elif value is not None:
            ref = self.resolver.at(site).expr(value)
            if ref is not None and ref.home is not None and ref.kind == "class":
                node, home = ref.node, ref.home
        return (node if isinstance(node, ast.ClassDef) else None), home

    def derives_from(self, name: str) -> bool:
        """Whether that class derives from the one that it replaces."""
        node, home = self.own_class
        return node is not None and derives(node, home, name)

    @cached_property
    def reaches_original(self) -> bool:
        """Whether the replacement calls what it replaced."""
        return reaches_original(self.install, self.new)

    @cached_property
    def taken(self) -> Parameters | None:
        """What the replacement takes, the object itself left out; None where that is not evident."""
        function, value = self.new.function, self.install.value
        if function is None or self.install.adds or not self._decorators <= _TRANSPARENT:
            return None
        if last_attribute(getattr(value, "func", None)) in _PARTIAL or is_given_original(self.install):
            return None
        detail = parameters_of(function)
        return parameters(without_self(detail) if self.is_bound or self.has_own_object else detail)

    def taken_from(self, usage: Usage, model: Model) -> Parameters | None:
        """What it takes of one call: a plain function in place of a static method gets no object through the class."""
        target = model.find(self.target_on(model))
        is_static = target is not None and target.fact.trait("static") is not None
        if self.taken is None or self.new.function is None or not is_static or usage.how != EXACT:
            return self.taken
        return parameters(parameters_of(self.new.function))

    @cached_property
    def _decorators(self) -> set[str]:
        """The decorators of the replacement, the one that registers it left out."""
        every = getattr(self.new.function, "decorator_list", ())
        return {leaf_of(decorator) for decorator in every if decorator is not self.install.node}

    @cached_property
    def is_bound(self) -> bool:
        """Whether the replacement is given the object that is patched."""
        wrapper = last_attribute(getattr(self.install.value, "func", None))
        if "staticmethod" in self._decorators and isinstance(self.install.value, ast.Name):
            return False  # the static method itself is assigned, not what a class makes of it
        if self.has_own_object:
            return False
        if wrapper in ("MethodType", "__get__"):
            return True
        return self._of_class and not self.is_alone and wrapper not in ("staticmethod", *_PARTIAL)

    @cached_property
    def has_own_object(self) -> bool:
        """Whether it is a method of an object of the repository, which it is given in place of the patched one."""
        value = self.install.value
        ref = self.resolver.at(self.install.site).expr(value) if isinstance(value, ast.Attribute) else None
        return (
            ref is not None and ref.bound and ref.node is self.new.function and "staticmethod" not in self._decorators
        )

    @property
    def is_alone(self) -> bool:
        """Whether one object is patched, not its class."""
        return self.install.shape in ("instance-attr", "submodule") or self.install.on_instance

    @cached_property
    def _of_class(self) -> bool:
        owner = known.last(self.install.owner)
        found = known.model(owner).find(self.install.owner) if owner is not None else None
        return found is not None and found.fact.kind == "class"


def _raising(demands: list[Demand], model: Model) -> list[tuple[Demand, list[Statement]]]:
    # What no release has may be a fork's: where it is imported on the way to a patch, that is said.
    told = (demand for demand in demands if known.ever(demand.name) or (demand.module and demand.when == INSTALL))
    asked = ((demand, [*raised(demand, model)]) for demand in told if not demand.name.startswith(COMPILED))
    return [(demand, statements) for demand, statements in asked if statements]


def _nodes(demands: list[Demand]) -> set[int]:
    return {id(demand.node) for demand in demands}


def taken_by(method: Function) -> Parameters | None:
    """What calls of a method can pass; None where a decorator may change that."""
    marks = set(map(leaf_of, method.decorator_list))
    if not marks <= {*_TRANSPARENT, "classmethod"}:
        return None
    detail = parameters_of(method)
    return parameters(detail if "staticmethod" in marks else without_self(detail))
