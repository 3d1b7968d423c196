"""A method that is added to a Megatron class or object: Megatron never calls it, so the function can be called itself.

`obj.name(...)` becomes `function(obj, ...)` where the file alone names it, and only calls it. A function that stands in
another one moves to the top of the file, where its callers find it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mcore_unpatch.codemods.changes import Change, Insert, Make
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, bound_to
from mcore_unpatch.codemods.syntax import body_of, leaf, names_in, parameters, walk_without
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Function, Source, first_line, last_line

_OF_CLASSES = ("property", "staticmethod", "classmethod", "cached_property")
_SHOWN = 8


def to_calls(patch: Patch) -> Rewritten | str:
    """Calls of the function in the place of the method, or why not."""
    source, function, name = patch.source, patch.function, patch.target.attr
    if function is None or not patch.bound or isinstance(function, ast.AsyncFunctionDef):
        return "the added method is not a function of this file whose first parameter is the object"
    if any(leaf(one) in _OF_CLASSES for one in function.decorator_list):
        return f"line {first_line(function)} turns it into a property, a static method or a class method"
    if (to := bound_to(patch.statement.value)) is not None and ast.unparse(to) != ast.unparse(patch.target.value):
        return f"it is bound to `{ast.unparse(to)}`, not to the object it is added to"
    if not source.owns_lines(patch.statement):
        return f"line {patch.statement.lineno} holds more than one statement"
    if others := [place for place in mentions(patch.situation.files, name) if place[0] != source.path]:
        return f"{others[0][0]}:{others[0][1]} also refers to it"
    calls = _calls(source, name, patch.target)
    if isinstance(calls, str):
        return calls
    bound = [node for node in source.nodes if _binds(node, function.name) and node is not function]
    if bound:
        return f"`{function.name}` also means something else in this file"
    moved = _at_the_top(source, function, calls)
    if isinstance(moved, str):
        return moved
    changes: list[Change] = [Make(call, _called_with(function.name)) for call in calls]
    return Rewritten([*moved, *changes, *remove(source, [patch.statement], with_comments=True)])


def mentions(files: Repository, name: str) -> Iterator[tuple[str, int]]:
    """The lines of the repository that name something, in whatever way."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    for source in files.sources_saying(name):
        for number, line in enumerate(source.lines, 1):
            if word.search(line.decode(source.encoding, "replace")):
                yield source.path, number


def steps(patch: Patch | None, because: str, files: Repository) -> str:
    """What to do by hand: the lines that call it."""
    text = f"Not rewritten: {because}."
    if patch is None:
        return text
    lines = [f"{path}:{line}" for path, line in mentions(files, patch.target.attr)]
    here = f"{patch.source.path}:{patch.statement.lineno}"
    shown = [one for one in lines if one != here][:_SHOWN]
    more = f" and {len(lines) - 1 - len(shown)} more" if len(lines) - 1 > len(shown) else ""
    return f"{text} It is mentioned in {', '.join(shown)}{more}." if shown else text


def _calls(source: Source, name: str, installed: ast.Attribute) -> list[ast.Call] | str:
    """Every call of the method in a file, where nothing else is done with its name."""
    calls: list[ast.Call] = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == name and node is not installed:
            call = source.parents[node]
            if (
                not isinstance(call, ast.Call)
                or call.func is not node
                or leaf(getattr(node.value, "func", None)) == "super"
            ):
                return f"line {node.lineno} uses it without calling it"
            if call.args and isinstance(call.args[-1], ast.GeneratorExp):
                return f"line {node.lineno} calls it with a generator"  # which may have no parentheses of its own
            calls.append(call)
        named = isinstance(node, ast.Constant) and isinstance(node.value, str) and name in node.value
        method = isinstance(node, Function) and node.name == name and isinstance(source.parents[node], ast.ClassDef)
        if named or method:
            return f"line {node.lineno} also refers to it"  # type: ignore[attr-defined]
    if any(one is not other and one in ast.walk(other) for one in calls for other in calls):
        return f"line {calls[0].lineno} nests calls of it"
    return calls or "nothing in the file calls it"


def _binds(node: ast.AST, name: str) -> bool:
    named = () if isinstance(node, ast.keyword) else (getattr(node, key, None) for key in ("name", "asname", "arg"))
    return name in named or name in _stored([node])


def _at_the_top(source: Source, function: Function, calls: Sequence[ast.Call]) -> list[Change] | str:
    """Nothing for a function that all calls can name; else what brings it out of the function that it stands in."""
    around = [one for one in source.above(function) if isinstance(one, Function | ast.ClassDef)]
    if not around or all(around[0] in source.above(call) and isinstance(around[0], Function) for call in calls):
        return []
    own = {*parameters(function), *_stored(ast.walk(function))}
    outer = {name for one in around if isinstance(one, Function) for name in _bound_in(one, function)}
    if isinstance(around[0], ast.ClassDef) or (names_in(function) - own) & outer:
        return f"`{function.name}` uses variables of the enclosing function and is called outside of it"
    texts = [
        one for part in body_of(function) for one in ast.walk(part) if isinstance(one, ast.Constant | ast.JoinedStr)
    ]
    if any(one.lineno != one.end_lineno for one in texts):
        return f"`{function.name}` would have to move, and contains a string of several lines"
    first, last = source.first_with_comments(function), last_line(function)
    text = textwrap.dedent(source.text_of(source.line_span(first, last)).replace("\r\n", "\n"))
    whole = around[-1]
    assert isinstance(whole, ast.stmt)
    return [
        Insert(whole, source.first_with_comments(whole), f"{text.rstrip()}\n\n"),
        *remove(source, [function], with_comments=True),
    ]


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}


def _bound_in(function: Function, besides: Function) -> set[str]:
    """What a function binds, by whatever statement, outside of another one in it."""
    nodes = list(walk_without(function, [besides]))
    aliases = {(one.asname or one.name).partition(".")[0] for one in nodes if isinstance(one, ast.alias)}
    named = {getattr(one, "name", None) or getattr(one, "arg", None) for one in nodes if one is not function}
    return {*_stored(nodes), *aliases, *filter(None, named)}


def _called_with(name: str) -> Callable[[Any], Any]:
    """What makes `name(obj, ...)` of `obj.method(...)`; arguments keep their lines and comments."""

    def make(call: Any) -> Any:
        import libcst as cst

        space = call.whitespace_before_args if call.args else cst.SimpleWhitespace("")
        after = space if isinstance(space, cst.ParenthesizedWhitespace) else cst.SimpleWhitespace(" ")
        comma = cst.Comma(whitespace_after=after) if call.args else cst.MaybeSentinel.DEFAULT
        first = cst.Arg(call.func.value.with_changes(lpar=(), rpar=()), comma=comma)
        return call.with_changes(func=cst.Name(name), args=[first, *call.args])

    return make
