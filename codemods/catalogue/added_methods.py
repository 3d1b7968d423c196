"""A method that a function adds to one object of Megatron: its callers call the function, with the object."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace, above
from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Left, Match, Note
from mcore_unpatch.codemods.removal import heads_others, remove
from mcore_unpatch.codemods.syntax import bound_in, is_name, leaf, names_in, walk_without
from mcore_unpatch.editing.source import Function, Source, Span, first_line, last_line
from mcore_unpatch.megatron import known

_FORM = "only a plain function inside of another, which adds it to one object and calls it in the same file, is moved"


class AddedMethods(Codemod):
    """The function moves before the one that added it."""

    name, title = "added-methods", "Methods added to Megatron's objects"
    answers = ("MCU404",)
    does = "calls the function with the object"
    examples = (
        Example(
            "MCU404",
            before="""
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def adjust(model: GPTModel):
    def set_shape(self, shapes):
        self._split = shapes[0][-1]

    model.set_shape = types.MethodType(set_shape, model)
    model.eval()


def exchange(model, shapes):
    model.set_shape(shapes)
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


def set_shape(model, shapes):
    model._split = shapes[0][-1]


def adjust(model: GPTModel):
    model.eval()


def exchange(model, shapes):
    set_shape(model, shapes)
""",
            unsafe=True,
        ),
    )
    covers = """
a method that Megatron lacks, which a function adds to one object (`model.set_shape = types.MethodType(f, model)`), `f`
defined inside of it
"""
    changes = """
The function moves before the one that added it, and is called with the object.
"""
    applied = """
With `--unsafe-fixes`, where the method is called in this file alone, on objects of the same name. Everything else is by
hand: methods that are added to a class or to several objects, that another file names, that are passed on or asked for
by name, and functions that use names of the one around them.
"""
    by_hand = """
- **Methods of a class** (`Class.method = f`): call the functions with the object, wherever the method is called. Where
  classes have functions of their own, write one that asks for the class.
- **The object in another repository**, which still calls the method: search for it.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """The function outside, and its calls."""
        match match.node:
            case ast.Assign([ast.Attribute(holder, method)], ast.Call(func, [ast.Name(name), bound], [])):
                if leaf(func) == "MethodType" and ast.unparse(holder) == ast.unparse(bound):
                    made = _moved(source, match, holder, method, name)
                    yield from [Left(_FORM)] if made is None else made


@dataclass(frozen=True)
class _Added:
    """A method, what its object is called, and the name of the function."""

    source: Source
    method: str
    holder: str
    function: str

    def calls(self, own: Sequence[ast.AST]) -> list[Change] | None:
        """Every call in the file as one of the function; None where the method is anything but called."""
        made: list[Change] = []
        for node in self.source.every(ast.Attribute, ast.Constant, ast.FunctionDef):
            call = self.source.parents[node]
            named = self.method in (getattr(node, "attr", ""), getattr(node, "value", ""), getattr(node, "name", ""))
            if not named or {node, call} & {*own}:
                continue
            plain = isinstance(node, ast.Attribute) and isinstance(call, ast.Call)
            if not plain or not self._can_be_called(node, call):  # type: ignore[arg-type]
                return None
            made.append(Replace(call, _with_object(self.source, call, self.function)))  # type: ignore[arg-type]
        return made or None

    def _can_be_called(self, node: ast.Attribute, call: ast.Call) -> bool:
        """Whether a call is of such an object, laid out plainly, and nothing around it means another function."""
        around = [*self.source.above(call)]
        scopes = [one for one in around if isinstance(one, Function | ast.Lambda)]
        bound = {name for scope in scopes for name in bound_in(ast.walk(scope))}
        odd = any(isinstance(one, ast.Try | ast.With | ast.JoinedStr | ast.ClassDef) for one in around)
        nested = any(
            isinstance(one, ast.Attribute) and one.attr == self.method for one in ast.walk(call) if one is not node
        )
        inside = [one for one in ast.walk(call) if isinstance(one, ast.Constant) and one.lineno != one.end_lineno]
        text, called = self.source.text(call), self.source.text(node)
        generator = bool(call.args) and self.source.span(call.args[-1]).end == self.source.span(call).end
        plain = call.func is node and text.startswith(f"{called}(") and not generator
        return plain and leaf(node.value) == self.holder and not (odd or nested or inside or {self.function} & bound)


def _moved(source: Source, match: Match, holder: ast.expr, method: str, name: str) -> list[Fix] | None:
    """The changes; None for another form."""
    situation, statement, around = match.situation, match.node, source.function_of(match.node)
    if around is None or source.parents[around] is not source.tree or statement not in around.body:
        return None
    inner = [node for node in around.body if isinstance(node, ast.FunctionDef) and node.name == name]
    owner, elsewhere = leaf(holder), [one for one in situation.files.sources_naming(method) if one is not source]
    mentions = sum(is_name(node, name) for node in source.nodes) + sum(
        name == getattr(node, "name", "") for node in source.nodes
    )
    others = set(around.body) - {statement, *inner} - ({around.body[0]} if ast.get_docstring(around) else set())
    if len(inner) != 1 or mentions != 2 or elsewhere or not others or not owner or not _stands_alone(inner[0], around):
        return None
    if any(known.newest(version).ending(method) for version in situation.options.judged(source.path)):
        return None
    calls = _Added(source, method, owner, name).calls([statement, inner[0]])
    if calls is None:
        return None
    heading = heads_others(source, inner[0], ())
    first = first_line(inner[0]) if heading else source.first_with_comments(inner[0])
    text = textwrap.dedent("\n".join(source.line(number) for number in range(first, last_line(inner[0]) + 1)))
    names = [getattr(node, "id", getattr(node, "arg", "")) for node in ast.walk(inner[0])]
    if names.count("self") == len(re.findall(r"\bself\b", text)) and owner not in names:
        text = re.sub(r"\bself\b", owner, text)  # it is a method no longer
    note = Note("calls of the same method on objects of other names, in other code, are left: search for them")
    return [above(source, around, text + "\n\n"), *calls, *remove(source, [inner[0], statement]), note]


def _stands_alone(inner: ast.FunctionDef, around: Function) -> bool:
    """Whether a function uses no name of the one around it, and can be moved as it is written."""
    every, spec = list(ast.walk(inner)), inner.args
    early = {name for node in (*spec.defaults, *filter(None, spec.kw_defaults)) for name in names_in(node)}
    asked = names_in(inner) - {*bound_in(every)} | early
    long = any(isinstance(node, ast.Constant) and node.lineno != node.end_lineno for node in every)
    shares = any(isinstance(node, ast.Nonlocal) for node in every) or inner.decorator_list
    return not long and not shares and not asked & {*bound_in(walk_without(around, [inner]))}


def _with_object(source: Source, call: ast.Call, function: str) -> str:
    """`function(x, ...)` for `x.method(...)`, laid out as it is."""
    assert isinstance(call.func, ast.Attribute)
    statement = next(node for node in source.above(call) if isinstance(node, ast.stmt))
    rest = source.text(call)[len(source.text(call.func)) :].removeprefix("(")
    rest = rest.replace(f"\n{source.indentation(statement)}", "\n")  # what is inside brackets is indented with it
    space = rest[: len(rest) - len(rest.lstrip())]
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    last = max((source.span(node).end for node in given), default=0)
    closed = source.text_of(Span(last, source.span(call).end)).lstrip().startswith(",")
    apart = space if "\n" in space and (closed or len({node.lineno for node in given}) > 1) else " "
    return f"{function}({space}{source.text(call.func.value)}{f',{apart}' if given else ''}{rest.lstrip()}"
