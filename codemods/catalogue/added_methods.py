"""Methods that one function adds to objects of Megatron: callers call the functions, with the object."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.codemod import Codemod, Elsewhere, Example, Fix, Left, Match, Note, Settles
from mcore_unpatch.codemods.emptied import references, with_emptied
from mcore_unpatch.codemods.removal import heads_others, remove
from mcore_unpatch.codemods.seams.added import find_alias, made_before, to_subclass
from mcore_unpatch.codemods.seams.class_methods import ClassMethods, added_to_class, family, without
from mcore_unpatch.codemods.seams.method_calls import MethodCalls, name_of
from mcore_unpatch.codemods.syntax import body_of, bound_in, is_pure, leaf, names_in, parameters, walk_without
from mcore_unpatch.editing.edits import as_name
from mcore_unpatch.editing.source import Function, Source, first_line, last_line, lines_of
from mcore_unpatch.findings.finding import Finding

_FORM = "only a function that adds methods to its one parameter, by its class, is rewritten"
_OTHERS = "calls of the same method on objects of other names are left: search for them"


class AddedMethods(Codemod):
    """The function that adds methods becomes functions that choose by the object's class."""

    name, title = "added-methods", "Methods added to Megatron's objects"
    answers = ("MCU404", "MCU204")
    does = "calls the function with the object"
    examples = (
        Example(
            "MCU404",
            before="""
import types

from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer


def bind_offload(optimizer):
    if isinstance(optimizer, ChainedOptimizer):
        for child in optimizer.chained_optimizers:
            bind_offload(child)
        optimizer.offload_states = types.MethodType(offload_chained, optimizer)
    elif isinstance(optimizer, DistributedOptimizer):
        optimizer.offload_states = types.MethodType(offload_distributed, optimizer)
    else:
        raise RuntimeError("not supported")


def offload_chained(self, pin_memory=True):
    for child in self.chained_optimizers:
        child.offload_states(pin_memory=pin_memory)


def offload_distributed(self, pin_memory=True):
    for buffer in self.buffers:
        buffer.offload(pin_memory)


def sleep(optimizer):
    optimizer.offload_states(pin_memory=False)


def setup(optimizer):
    bind_offload(optimizer)
    optimizer.reload_model_params()
""",
            after="""
from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer


def offload_states(optimizer, *args, **kwargs):
    if isinstance(optimizer, ChainedOptimizer):
        return offload_chained(optimizer, *args, **kwargs)
    elif isinstance(optimizer, DistributedOptimizer):
        return offload_distributed(optimizer, *args, **kwargs)
    else:
        raise RuntimeError("not supported")


def offload_chained(self, pin_memory=True):
    for child in self.chained_optimizers:
        offload_states(child, pin_memory=pin_memory)


def offload_distributed(self, pin_memory=True):
    for buffer in self.buffers:
        buffer.offload(pin_memory)


def sleep(optimizer):
    offload_states(optimizer, pin_memory=False)


def setup(optimizer):
    optimizer.reload_model_params()
""",
            unsafe=True,
        ),
        Example(
            "MCU404",
            before="""
from megatron.core.optimizer import DistributedOptimizer


def offload_states(self, pin_memory=True):
    for buffer in self.buffers:
        buffer.offload(pin_memory)


def install():
    DistributedOptimizer.offload_states = offload_states


def sleep(optimizer):
    install()
    optimizer.offload_states(pin_memory=False)
""",
            after="""
def offload_states(self, pin_memory=True):
    for buffer in self.buffers:
        buffer.offload(pin_memory)


def sleep(optimizer):
    offload_states(optimizer, pin_memory=False)
""",
            unsafe=True,
        ),
    )
    covers = """
methods that statements add to a class (`DistributedOptimizer.offload_states = f`), that one function of a module adds
to its parameter, to objects of one or several classes (`optimizer.offload_states = types.MethodType(f, optimizer)`), or
to an object that it makes itself
"""
    changes = """
- What is added to a class goes, with the function that only does this and its calls, and the functions are called with
  the object, in all files. Where several classes have functions of their own for a method, one comes that asks for the
  class, those that derive from another first.
- The function becomes one for each method, of the same name, that chooses by the object's class as it did; its calls
  go, and those of the methods call the new functions with the object, in all files.
- A function inside of another that is added once moves before it, and is called with the object.
- A property that only gives another attribute of the object, as `mtp_model_layer` under its old name, goes, and that
  attribute is read. That an object is of the class is told by its own class, or by where it is read from.
- Where the file itself makes the object, right before the methods are added, a subclass has them, under the name that
  the class was imported as: whoever asks for a method by name, and tests that replace the class, find it as before.
"""
    applied = """
With `--unsafe-fixes`. The object is known by its annotation, by the class of which the file makes it, or by its name:
one under which it is given to the function, or the last word of the class (`actor_optimizer`, `optimizers`), in a file
that speaks of Megatron or imports the one with the patch. Left with the reason and the steps are methods that are
passed on or asked for by name (`getattr`), that nothing calls, or that a class of the repository has itself where an
object may be of it; calls under `except AttributeError`, or where the function's name means something else; calls of
another object in a file that imports the function, and of such an object in one that does not, or must not.
"""
    by_hand = """
- **An object of another class** raises when a function is called with it, and no longer when methods are added.
- **The object under another name**, in a file that does not import the function, still calls the method: search for it.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """All methods that one function adds, with the first of them."""
        wanted: list[Fix] = []
        for answer in _wanted(source, match):
            if isinstance(answer, Left):  # the rest, which asks many files, is not made
                yield answer
                return
            wanted.append(answer)
        yield from wanted


def _wanted(source: Source, match: Match) -> Iterator[Fix]:
    """The changes, or among them why they are not made."""
    situation, statement, around = match.situation, match.node, source.function_of(match.node)
    if alias := find_alias(source, statement):
        yield from alias.renamed(situation.files, situation.finding.target, situation.options.judged(source.path))
        return
    if match.rule == "MCU404" and added_to_class(statement) and situation.finding.shape != "instance-attr":
        yield from ClassMethods(match, source).as_functions()
        return
    plain = isinstance(statement, ast.Assign) and _bound_function(statement) is not None
    if not isinstance(statement, ast.Assign) or not plain or around is None or match.rule != "MCU404":
        return  # another form, with steps of its own
    inside = {
        node: finding
        for finding in situation.open
        if finding.path == source.path and finding.rule == match.rule
        if (node := source.starting.get((finding.line, finding.column - 1)))
        if source.function_of(node) is around
    }
    alike = [finding for finding in situation.open if finding.rule == match.rule]
    said = {name.rpartition(".")[2] for finding in alike for name in (finding.target, finding.scope)}
    situation.files.look_for(*map(as_name, said - {""}))
    adding = _Adding(match, source, around, inside)
    if made := made_before(source, statement):
        yield from adding.of_a_class(made)
    elif source.parents[around] is not source.tree:
        yield Left(_FORM)
    else:
        yield from adding.moved(statement) if statement in around.body else adding.chosen_by_class()
        yield Note(_OTHERS)


@dataclass(frozen=True)
class _Adding:
    """A function that adds methods: the statements that do, each with its finding."""

    match: Match
    source: Source
    function: Function
    findings: dict[ast.stmt | ast.expr, Finding]

    def of_a_class(self, made: ast.Assign) -> Iterator[Fix]:
        """The methods of an object that is made here are those of a subclass."""
        beside = [node for node in self.source.home[id(made)] if isinstance(node, ast.Assign) and node in self.findings]
        added = {node: leaf(_bound_function(node)) for node in beside if made_before(self.source, node) is made}
        yield from to_subclass(self.match.situation.files, self.source, made, added)
        yield Note("what is saved by the name of its class, as by pickle or in a configuration, names the subclass")
        yield Settles([self.findings[node] for node in added])

    def moved(self, statement: ast.Assign) -> Iterator[Fix]:
        """A function inside this one comes to stand before it."""
        target, value = statement.targets[0], _bound_function(statement)
        inner = [node for node in self.function.body if isinstance(node, Function) and node.name == leaf(value)]
        if not isinstance(target, ast.Attribute) or len(inner) != 1:
            yield Left(_FORM)
            return
        spec, every = inner[0].args, list(ast.walk(inner[0]))
        early = [*spec.defaults, *filter(None, spec.kw_defaults)]
        asked = names_in(inner[0]) - {*bound_in(every)} | {name for node in early for name in names_in(node)}
        shares = any(isinstance(node, ast.Nonlocal) for node in every) or inner[0].decorator_list
        if shares or asked & {*bound_in(walk_without(self.function, inner))}:
            yield Left(f"`{inner[0].name}` uses names of `{self.function.name}`")
            return
        if sum(inner[0].name == leaf(node) for node in self.source.nodes) != 1:
            yield Left(f"`{inner[0].name}` is also used elsewhere")
            return
        texts = (node for one in body_of(inner[0]) for node in ast.walk(one) if isinstance(node, ast.Constant))
        if any(node.lineno != node.end_lineno for node in texts):
            yield Left(f"`{inner[0].name}` has a text of several lines, which would move")
        heading = heads_others(self.source, inner[0], ())
        first = first_line(inner[0]) if heading else self.source.first_with_comments(inner[0])
        lines = [self.source.line(number) for number in range(first, last_line(inner[0]) + 1)]
        emptied = with_emptied(self.match.situation.files, {self.source: [inner[0], statement]})
        yield from [Left(emptied.why_not)] if emptied.why_not else []
        text, given = textwrap.dedent("\n".join(lines)), leaf(target.value)
        names = [
            node.id if isinstance(node, ast.Name) else node.arg
            for node in every
            if isinstance(node, ast.Name | ast.arg)
        ]
        if names.count("self") == len(re.findall(r"\bself\b", text)) and given not in names:
            text = re.sub(r"\bself\b", given, text)  # it is a method no longer
        yield above(self.source, self.function, text + "\n\n")
        calls = list(self._called(target.attr, inner[0].name, {leaf(target.value)}))
        yield from (*calls, *without(emptied, self.source, calls))

    def chosen_by_class(self) -> Iterator[Fix]:
        """The function becomes one for each method."""
        given, branches = self._branches
        functions = {name: texts for name, texts in branches.items() if len(texts) == len(self._tests)}
        raises = not self._rest or isinstance(self._rest[-1], ast.Raise)
        plain = isinstance(self.function, ast.FunctionDef) and not self.function.decorator_list
        if not functions or len(functions) != len(branches) or not raises or not plain:
            yield Left(_FORM)
            return
        commented = any("#" in self.source.line(line) for line in lines_of(self.function))
        if body_of(self.function) is not self.function.body or commented:
            yield Left(f"`{self.function.name}` has a docstring or comments, which speak of what goes")
            return
        loops = [node for node in ast.walk(self.function) if isinstance(node, ast.For)]
        objects = {given, *(leaf(loop.iter) for loop in loops)}
        changes: list[Fix] = []
        for other, use in references(self.match.situation.files, self.source, self.function):
            call = use.value if isinstance(use, ast.Expr) else None
            if other.path not in self.match.situation.files.editable:
                yield Left(f"{other.path} uses it and is not part of this migration")
                return
            given_to = [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []
            binds = len(given_to) == 1 and is_pure(given_to[0])
            if isinstance(use, ast.Expr) and binds and len(other.home[id(use)]) > 1:
                objects.add(name_of(given_to[0]))
                changes += [Elsewhere(other, change) for change in remove(other, [use])]
            elif not (isinstance(use, ast.ImportFrom) and use in other.tree.body and not use.level):
                yield Left(f"{other.path}:{use.lineno} uses `{self.function.name}` in another way")
                return
        yield Rewrite(self.function, "\n\n\n".join(self._function(name, given, functions[name]) for name in functions))
        yield from changes
        for name in functions:
            yield from self._called(name, name, objects - {""})
        if self._rest:
            yield Note(f"what `{self.function.name}` raised for an object of another class is raised by the first call")
        yield Settles(tuple(self.findings.values()))

    @cached_property
    def _tests(self) -> list[tuple[ast.expr, list[ast.stmt]]]:
        """The branches: each test with what it guards."""
        branches, rest = [], body_of(self.function)
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            branches.append((rest[0].test, rest[0].body))
            rest = rest[0].orelse
        return branches

    @property
    def _rest(self) -> list[ast.stmt]:
        """What is done for an object of another class."""
        parent = self.source.parents[self._tests[-1][1][0]] if self._tests else None
        return parent.orelse if isinstance(parent, ast.If) else []

    @cached_property
    def _branches(self) -> tuple[str, dict[str, list[str]]]:
        """The parameter, and for each method the functions, branch by branch; nothing where a branch does more."""
        names = parameters(self.function)
        added: dict[str, list[str]] = {}
        for test, body in self._tests:
            asks = isinstance(test, ast.Call) and leaf(test.func) == "isinstance" and len(test.args) == 2
            if not asks or leaf(test.args[0]) not in names:  # type: ignore[attr-defined]
                return "", {}
            for statement in body:
                adds = statement in self.findings and isinstance(statement, ast.Assign)
                if adds and (value := _bound_function(statement)):  # type: ignore[arg-type]
                    added.setdefault(leaf(statement.targets[0]), []).append(value.id)  # type: ignore[attr-defined]
                elif not self._is_for_children(statement):
                    return "", {}
        return (names[0], added) if len(names) == 1 else ("", {})

    def _is_for_children(self, node: ast.stmt) -> bool:
        """`for child in x.children: bind(child)`."""
        call = node.body[0].value if isinstance(node, ast.For) and isinstance(node.body[0], ast.Expr) else None
        return isinstance(call, ast.Call) and len(node.body) == 1 and leaf(call.func) == self.function.name  # type: ignore[attr-defined]

    def _function(self, name: str, given: str, functions: list[str]) -> str:
        """The text of a function that chooses by the class."""
        source, spec = self.source, self.function.args
        parameter = next(iter((*spec.posonlyargs, *spec.args, *spec.kwonlyargs)))
        said = f"{given}: {source.text(parameter.annotation)}" if parameter.annotation else given
        lines = [f"def {name}({said}, *args, **kwargs):"]
        for number, ((test, _), function) in enumerate(zip(self._tests, functions, strict=True)):
            lines += [
                f"    {'elif' if number else 'if'} {source.text(test)}:",
                f"        return {function}({given}, *args, **kwargs)",
            ]
        # What had no such method raised when it was called.
        unknown = [f'raise TypeError(f"{name} does not know {{type({given}).__name__}}")']
        others = "|".join(re.escape(method) for method in self._branches[1])  # the message was for all of them
        rest = [re.sub(rf"\b(?:{others})\b", name, source.text(statement)) for statement in self._rest] or unknown
        return "\n".join([*lines, "    else:", *(textwrap.indent(text, "        ") for text in rest)])

    def _called(self, method: str, function: str, objects: set[str]) -> Iterator[Fix]:
        """The calls of a method, of objects that are known by their names."""
        classes = family(self.match, self.findings.values())
        names = {leaf(_bound_function(node)) for node in self.findings if isinstance(node, ast.Assign)}
        bodies = [node for node in self.source.every(ast.FunctionDef) if node.name in names]
        calls = MethodCalls(self.match, self.source, self.findings, classes, objects.__contains__, bodies)
        return calls.replaced(method, function)


def _bound_function(statement: ast.Assign) -> ast.Name | None:
    """`f` of `x.name = types.MethodType(f, x)`."""
    match statement:
        case ast.Assign([ast.Attribute(value=holder)], ast.Call(func, [ast.Name() as function, bound], [])):
            if leaf(func) == "MethodType" and ast.unparse(holder) == ast.unparse(bound):
                return function
    return None
