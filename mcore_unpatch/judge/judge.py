"""The one judge: what a release of Megatron does to a patch and to everything that its replacement reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from mcore_unpatch.judge import dropped, left_out
from mcore_unpatch.judge.asked import is_replaced, missing, raised
from mcore_unpatch.judge.demands import CALL, INSTALL, Demand, Demands, itself, may_create
from mcore_unpatch.judge.instead import absent, advice, instead, leaf, nowhere, short, unfit
from mcore_unpatch.judge.originals import calls_of_original, is_given_original, reaches_original, reads_by_name
from mcore_unpatch.judge.statement import CHANGES, IDLE, RAISES, Statement, labels, only_if
from mcore_unpatch.judge.supplied import is_used
from mcore_unpatch.library.fact import Parameters, parameters, quoted, without_self
from mcore_unpatch.library.model import DEFAULT, EXACT, Model, Usage
from mcore_unpatch.library.syntax import parameters_of
from mcore_unpatch.library.usage import form
from mcore_unpatch.megatron import known, layout
from mcore_unpatch.megatron.versions import RELEASES, ROOT, minor, parse_version, show, within
from mcore_unpatch.scanner.judging import replacement
from mcore_unpatch.scanner.judging.replacement import Replacement
from mcore_unpatch.scanner.names.bindings import own_class
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.evidence import is_class_of_object
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, path_text

T = TypeVar("T")
_MOST_STEPS = 200_000  # for what one patch asks of Megatron
_MOST_SAID = 20  # lines of one file that raise before a patch is called
_PARTIAL = ("partial", "partialmethod")
# Decorators that leave the parameters of a function as they are.
_TRANSPARENT = {"staticmethod", "no_grad", "inference_mode", "enable_grad", "wraps", "compile", "jit_fuser"}


class Case:
    """One patch: what it replaces, with what, and what that reaches."""

    def __init__(self, install: Install, resolver: Resolver, shapes: Mapping[str, str] | None = None) -> None:
        self.install, self.resolver = install, resolver
        self._shapes = shapes or {}  # of the patches of the repository that are known, by target
        self.new: Replacement = replacement.find(install, resolver)

    @property
    def demands(self) -> list[Demand]:
        """What it asks of Megatron: on import, when it is installed, when it is called."""
        return [demand for some in self._demands for demand in some]

    def raised_on(self, model: Model) -> Iterator[tuple[Demand, list[Statement]]]:
        """What a release raises where something is asked of it, in the same order."""
        *shared, own = self._demands
        for some in shared:
            yield from self._of_shared(some, (_raising, model), lambda some: _raising(some, model))
        yield from _raising(own, model)

    def _of_shared(self, some: list[Demand], key: Hashable, look: Callable[[list[Demand]], T]) -> T:
        """What is seen in demands that many patches of a file share, looked at once."""
        return self.resolver.kept((id(some), key), lambda: (some, look(some)))[1]  # held, so that its id stays its own

    @cached_property
    def _demands(self) -> list[list[Demand]]:
        """Those that other patches share, list by list, then its own.

        The budget of the file pays for finding patches: where it would not last, less is said of this one.
        """
        try:
            with self.resolver.project.effort.at_most(_MOST_STEPS):
                return self._find_demands()
        except Exhausted:
            return [[]]

    def _find_demands(self) -> list[list[Demand]]:
        asks = Demands(self.install.owner)
        homes = {id(home): home for home in (self.resolver, self.new.home) if home is not None}
        shared = [asks.of_import(home) for home in homes.values()]
        installer = self.install.site.scope.function
        if installer is not None:
            # Many patches may stand in one function.
            code, home = installer.node, self.resolver
            shared.append(home.kept((INSTALL, code), lambda: [*Demands().of_code(code, home, INSTALL, inner=False)]))
        found = [
            Demand(self.install.target, INSTALL, self.resolver.on_line(node.lineno))
            for node in (walk(self.install.value) if isinstance(self.install.value, ast.Call) else ())
            if isinstance(node, ast.Call) and len(node.args) == 2 and reads_by_name(node, self.install)
        ]
        for function, home in self.functions:
            own = itself(function) if self.is_bound or function is not self.new.function else None
            found += asks.of_code(function, home, CALL, itself=own)
        if self.original_calls:
            known_calls = [_nodes(found), *(self._of_shared(some, _nodes, _nodes) for some in shared)]
            new = [node for node in self.original_calls if not any(id(node) in some for some in known_calls)]
            found += map(self._of_original, new)
        return [*shared, found]

    def calls_ours(self, demand: Demand, model: Model) -> bool:
        """Whether a call of the replacement reaches another function of the repository, put in place of Megatron's."""
        return is_replaced(demand.on(model), model, self._shapes, self.install.target)

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
        given = unbound or (bool(passed) and passed == itself(self.new.function))
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
        return node is not None and own_class(node, home).name == name

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
        if _wrapper(value) in _PARTIAL or is_given_original(self.install):
            return None
        detail = parameters_of(function)
        return parameters(without_self(detail) if self.is_bound else detail)

    def taken_from(self, usage: Usage, model: Model) -> Parameters | None:
        """What it takes of one call: a plain function in place of a static method gets no object through the class."""
        target = model.find(self.install.target)
        is_static = target is not None and target.fact.trait("static") is not None
        if self.taken is None or self.new.function is None or not is_static or usage.how != EXACT:
            return self.taken
        return parameters(parameters_of(self.new.function))

    @cached_property
    def _decorators(self) -> set[str]:
        """The decorators of the replacement, the one that registers it left out."""
        every = getattr(self.new.function, "decorator_list", ())
        return {_decorator(one) for one in every if one is not self.install.node}

    @cached_property
    def is_bound(self) -> bool:
        """Whether the replacement is given the object that is patched."""
        wrapper = _wrapper(self.install.value)
        if "staticmethod" in self._decorators and isinstance(self.install.value, ast.Name):
            return False  # the static method itself is assigned, not what a class makes of it
        if wrapper in ("MethodType", "__get__"):
            return True
        return self._of_class and not self.is_alone and wrapper not in ("staticmethod", *_PARTIAL)

    @property
    def is_alone(self) -> bool:
        """Whether one object is patched, not its class."""
        return self.install.shape in ("instance-attr", "submodule") or self.install.on_instance

    @cached_property
    def _of_class(self) -> bool:
        owner = known.last(self.install.owner)
        found = known.model(owner).find(self.install.owner) if owner is not None else None
        return found is not None and found.fact.kind == "class"


def on(case: Case, model: Model) -> list[Statement]:
    """What one release does to a patch, what raises first."""
    said = [*_parameters(case, model), *_of_class(case, model), *_returns(case, model), *_demands(case, model)]
    said += _unheld(case, model)
    raises = any(statement.kind == RAISES for statement in said)
    said += dropped.hook(case.install, case.new, model, refused=not raises)
    said += _idle(case, model)
    return list(dict.fromkeys(said))


# --- callers of what is replaced -----------------------------------------------------------------------------------


def callers(model: Model, target: str) -> list[Usage]:
    """Who calls it in the library: those that are certain, else those told by a method's name."""
    taken, family = model.called_with(target), model.lineage(target.rpartition(".")[0])
    own = model.find(target)
    gives = int((own.fact.trait("gives") if own is not None else None) or 0)
    calls = []
    for usage in model.calls(target):
        assert usage.call is not None
        # A call that the library's own function would not take is one of something else: annotations can be too wide.
        is_own = usage.place.rpartition(".")[0] in family
        unpacks_other = bool(gives and usage.call.unpacked) and usage.call.unpacked != gives
        if is_own or ((taken is None or not taken.misfit(usage.call)) and not unpacks_other):
            calls.append(usage)
    calls = [usage for usage in calls if usage.sure] or calls
    return sorted(calls, key=lambda usage: len(model.lineage(usage.place.rpartition(".")[0])))  # subclasses last


def _parameters(case: Case, model: Model) -> Iterator[Statement]:
    """Calls of the library that the replacement does not take."""
    install = case.install
    if case.taken is None or case.new.function is None:
        return
    lacking: dict[str, Usage] = {}
    for usage in callers(model, install.target):
        call, taken = usage.call, case.taken_from(usage, model)
        assert call is not None and taken is not None
        unknown = [name for name in call.keywords if name not in taken.names and not taken.any_keyword]
        lacking |= {name: usage for name in unknown if name not in lacking}
        wrong = "" if unknown else taken.misfit(call)
        if wrong:
            since = _since(model, _fits_not(case, wrong))
            name = getattr(case.new.function, "name", "")
            who = f"`{name}`" if name else "the replacement"
            text = f"`{short(usage.place)}` {unfit(wrong, who)}: TypeError on {since}"
            text += only_if(*callers(model, install.target))
            yield Statement(RAISES, text, "TypeError", *here(case), CALL, usage.place)
    if lacking:
        places = list(dict.fromkeys(usage.place for usage in lacking.values()))
        who = f"`{short(places[0])}`" + (f" and {len(places) - 1} more" if len(places) > 1 else "")
        since = _since(model, lambda other: any(
            not lacking.keys().isdisjoint(usage.call.keywords)
            for usage in callers(other, install.target) if usage.call is not None
        ))  # fmt: skip
        verb = "passes" if len(places) == 1 else "pass"
        text = f"lacks {quoted(lacking)}, which {who} {verb}: TypeError on {since}"
        text += only_if(*callers(model, install.target))
        kind, exception = RAISES, "TypeError"
        if case.is_alone and all(place.startswith(f"{ROOT}.inference.") for place in places):
            kind, exception = CHANGES, ""
            text += ", once Megatron's own inference is given this object"
        yield Statement(kind, text, exception, *here(case), CALL, places[0])


def _of_class(case: Case, model: Model) -> Iterator[Statement]:
    """Calls of the library that build the class that is replaced, or call its methods, and do not fit the new one."""
    found, (node, _) = model.find(case.install.target), case.own_class
    if node is None or found is None or found.fact.kind != "class" or _is_default(case, model):
        return
    derived = case.derives_from(found.name)  # its methods are judged as overrides
    for method in (item for item in node.body if isinstance(item, ast.FunctionDef)):
        marks = set(map(_decorator, method.decorator_list))
        if (derived and method.name != "__init__") or not marks <= {"staticmethod", "classmethod"}:
            continue
        detail = parameters_of(method)
        taken = parameters(detail if "staticmethod" in marks else without_self(detail))
        # Autograd's `apply` calls `forward`, a context first.
        shift, called = (1, "forward") if method.name == "apply" else (0, method.name)
        usages = callers(model, f"{found.name}.{called}")
        for usage in usages:
            assert usage.call is not None
            if wrong := taken.misfit(replace(usage.call, positions=usage.call.positions - shift)):
                name = node.name if method.name == "__init__" else f"{node.name}.{method.name}"
                said = unfit(wrong, f"`{name}`")
                text = f"`{short(usage.place)}` {said}: TypeError on megatron-core {model.label}{only_if(*usages)}"
                yield Statement(RAISES, text, "TypeError", *here(case), CALL, usage.place)
                return


def _fits_not(case: Case, wrong: str) -> Callable[[Model], bool]:
    def test(model: Model) -> bool:
        calls = ((usage.call, case.taken_from(usage, model)) for usage in callers(model, case.install.target))
        return any(taken.misfit(call) == wrong for call, taken in calls if call is not None and taken is not None)

    return test


def _returns(case: Case, model: Model) -> Iterator[Statement]:
    """Callers that unpack another number of values than the replacement gives."""
    counts = case.new.returned_counts
    if case.new.function is None or 0 in counts or not counts or case.install.adds:
        return
    for usage in callers(model, case.install.target):
        wanted = usage.call.unpacked if usage.call is not None else 0
        if wanted and wanted not in counts:
            given = " or ".join(map(str, sorted(counts)))
            since = _since(model, lambda other, wanted=wanted: any(  # type: ignore[misc]
                one.call is not None and one.call.unpacked == wanted for one in callers(other, case.install.target)
            ))  # fmt: skip
            text = f"returns {given} values where `{short(usage.place)}` unpacks {wanted}: ValueError on {since}"
            text += only_if(*callers(model, case.install.target))
            yield Statement(RAISES, text, "ValueError", *here(case), CALL, usage.place)
            return


def _idle(case: Case, model: Model) -> Iterator[Statement]:
    """What is never called: a name that the release does not have, or one that is known to be read before."""
    install = case.install
    since, reason = layout.INERT_SINCE.get((install.owner, install.attribute), ((99, 0), ""))
    if since <= parse_version(model.label):
        yield Statement(IDLE, f"has no effect on megatron-core {show(since)}+, where {reason}", "", *here(case))
    if _is_default(case, model):
        text = f"has no effect: `{leaf(install.owner)}` takes it as a default when it is imported, which is before this"
        yield Statement(IDLE, text, "", *here(case))
    if install.adds or not within(install.target) or known.lacking(model, install.target):
        return
    if not known.holds(model, install.target) and not is_used(case.resolver, install.owner, install.attribute):
        if (when := absent(install.target, model)) and not install.attribute.startswith("__"):
            hint = advice(install.target, instead(install.target, model), when)
            text = f"`{leaf(install.target)}` does not exist {when}"
            if install.shape == "mock" and not may_create(install.node):
                text += f"; {hint}" if hint else ""
                yield Statement(RAISES, text, "AttributeError", *here(case), INSTALL, trigger="when it is mocked")
            else:
                yield Statement(IDLE, f"{text}, so nothing calls the replacement", "", *here(case), instead=hint)


def _unheld(case: Case, model: Model) -> Iterator[Statement]:
    """A class that no release has, read from a module that this one has to be patched."""
    owner, module = case.install.owner, case.install.owner.rpartition(".")[0]
    if case.install.shape == "class-attr" and known.holds(model, module) and not known.ever(owner):
        if not known.holds(model, owner):
            yield Statement(
                RAISES, nowhere(owner), "AttributeError", *here(case), INSTALL, trigger="where it is patched"
            )


def _is_default(case: Case, model: Model) -> bool:
    """Whether a module imports the name that is set in it, and reads it once, as a default of a field or parameter."""
    fact, uses = model.facts.get(case.install.target), model.uses(case.install.target)
    return fact is not None and fact.kind == "import" and bool(uses) and all(use.how == DEFAULT for use in uses)


# --- what the replacement asks of Megatron --------------------------------------------------------------------------


def _demands(case: Case, model: Model) -> Iterator[Statement]:
    """What raises in the code that a patch stands in and brings; of what runs before it is called, the first few."""
    said: set[tuple[str, int]] = set()
    calls = [usage.call for usage in callers(model, case.install.target) if usage.call is not None]
    for demand, statements in case.raised_on(model):
        if demand.when != CALL and len(said) >= _MOST_SAID:
            continue  # the first has stopped the file
        if case.calls_ours(demand, model):
            statements = list(missing(demand.on(model), model))
        if demand.when == CALL and not left_out.lets(demand, case.new.function, case.is_bound, calls, model):
            continue
        for statement in statements:
            if (statement.exception, statement.line) not in said:
                said.add((statement.exception, statement.line))
                yield statement


def _raising(demands: list[Demand], model: Model) -> list[tuple[Demand, list[Statement]]]:
    asked = ((demand, [*raised(demand, model)]) for demand in demands if known.ever(demand.name))
    return [(demand, statements) for demand, statements in asked if statements]


def _nodes(demands: list[Demand]) -> set[int]:
    return {id(demand.node) for demand in demands}


# --- words ----------------------------------------------------------------------------------------------------------


def here(case: Case) -> tuple[str, int]:
    """Where a patch stands."""
    return case.resolver.model.path, getattr(case.install.node, "lineno", 0)


def _since(model: Model, holds: Callable[[Model], bool]) -> str:
    """From which release on something holds, up to the one that is judged."""
    if model.label not in RELEASES:
        return f"megatron-core {model.label}"
    first = None
    for other in reversed(known.minors()):
        if RELEASES.index(other.label) > RELEASES.index(model.label):
            continue
        if not holds(other):
            break
        first = other
    return f"megatron-core {show(minor(parse_version((first or model).label)))}+"


def _decorator(node: ast.expr) -> str:
    return (path_text(node.func if isinstance(node, ast.Call) else node) or "?").rpartition(".")[2]


def _wrapper(value: ast.expr | None) -> str:
    """What is called to make the value: `staticmethod`, `partial`, `__get__`."""
    function = value.func if isinstance(value, ast.Call) else None
    return getattr(function, "attr", "") or getattr(function, "id", "")


def texts(statements: Iterable[Statement], case: Case, *kinds: str) -> list[str]:
    """The sentences of some kinds, each with its line where that is another than the patch's."""
    path, line = here(case)
    return [statement.seen_from(path, line) for statement in statements if statement.kind in kinds or not kinds]


def texts_on(by_release: Mapping[Model, list[Statement]], case: Case) -> list[str]:
    """The sentences of several releases: what each of some says of itself is said once, with all of them."""
    found: dict[str, list[Model]] = {}
    for model, statements in by_release.items():
        own = re.compile(rf"(?<=megatron-core ){re.escape(model.label)}(?![\d.+])")
        for text in texts(statements, case):
            found.setdefault(own.sub("\0", text), []).insert(0, model)
    order = list(by_release)[::-1]
    return [text.replace("\0", labels(models, order)) for text, models in found.items()]
