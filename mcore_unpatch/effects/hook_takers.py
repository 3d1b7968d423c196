"""Models of the repository that keep a hook of the library's from arriving: subclasses of its models, and wrappers.

No patch, but whoever passes the hook gets a TypeError, or nothing at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import qualified
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, parameters, spelled, walk
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.callers import drops
from mcore_unpatch.library.detailed import Detailed

SUBCLASS, WRAPPER = "subclass", "wrapper"
REFUSED, UNREAD, SWALLOWED = "refused", "unread", "swallowed"  # the last by `**rest`, which goes nowhere


class Hook(NamedTuple):
    """A callable that a model of the library takes by a keyword and calls on its output."""

    name: str  # of the keyword
    model: str
    without: tuple[str, ...]  # models of that kind that take no hook
    first: str  # the method that is called with it, and the one that it reaches
    last: str
    stage: str  # the argument and attribute that says whether there is an output


class HookTaker(NamedTuple):
    """A method that refuses the hook or drops it."""

    line: int
    column: int
    owner: str  # its class
    method: str
    shape: str
    target: str
    dropped: str
    rest: str  # the name of `**rest`
    call: int  # the line of the call that can hand it on; 0 where there is none
    path: str = ""
    releases: tuple[str, ...] = ()  # that have the hook


def hook_takers(names: Names, hook: Hook, path: str, releases: Sequence[Detailed]) -> list[HookTaker]:
    """The methods of a file that refuse the hook or drop it; none where no release has it."""
    labels = tuple(one.label for one in releases if hook.name in (one.parameters(f"{hook.model}.{hook.first}") or ()))
    source = names.index.sources[path]
    models = (one.rpartition(".")[2].encode() for one in (hook.model, *hook.without))
    methods = re.compile(rf"^[ \t]+(?:async )?def (?:{hook.first}|{hook.last})\(".encode(), re.M)
    left_out = is_test(path) or names.library.holds_file(path)
    if left_out or not labels or not any(one in source for one in models) or methods.search(source) is None:
        return []
    module = names.index.module(path)
    classes = [node for node in walk(module.tree) if isinstance(node, ast.ClassDef)] if module is not None else []
    found = (one for node in classes for one in _of_class(names, hook, node, releases[-1]))
    return [one._replace(path=path, releases=labels) for one in found]


def _of_class(names: Names, hook: Hook, node: ast.ClassDef, release: Detailed) -> Iterator[HookTaker]:
    own = {one.name: one for one in node.body if isinstance(one, NAMED_FUNCTIONS)}
    methods = [own[name] for name in (hook.first, hook.last) if name in own]
    base = _model(names, hook, Value(Kind.CLASS, qualified(node), node)) if methods else ""
    if base and "__init__" in own and _is_headless(own["__init__"], base, hook, release):
        return
    for function in methods:
        model, shape, inner = base, SUBCLASS, None
        if base:
            # The library's own last method takes the hook; one of the class is asked for itself.
            inner = _written(function, f"super().{function.name}")
            inner = inner or (None if hook.last in own else _written(function, f"self.{hook.last}"))
        elif function.name == hook.first:
            (model, inner), shape = _held(names, hook, function), WRAPPER
        dropped, rest = lost(function, hook.name)
        may_lack = model in hook.without or function.args.vararg is not None
        if not model or not dropped or (may_lack and hook.name not in {one.arg for one in parameters(function)}):
            continue
        line = inner.lineno if inner is not None and not _sets_stage(node, hook.stage, shape) else 0
        place = (function.lineno, function.col_offset + 1, node.name, function.name)
        yield HookTaker(*place, shape, f"{model}.{function.name}", dropped, rest, line)


def _model(names: Names, hook: Hook, value: Value) -> str:
    """The library's class that a value is or derives from, where that is a model with an output."""
    first = next(iter(names.of_library(value)), "")
    return first if first in hook.without or hook.model in names.library.lineage(first) else ""


def _is_headless(init: ast.AST, base: str, hook: Hook, release: Detailed) -> bool:
    """Whether a class builds its base without the last stage: there is no output then, and no hook."""
    call = _written(init, "super().__init__")
    if call is None:
        return False
    places = [name for name in release.parameters(base) or () if name != "self"]
    given: dict[str | None, ast.expr] = dict(zip(places, call.args, strict=False))
    last = (given | {word.arg: word.value for word in call.keywords}).get(hook.stage)
    return isinstance(last, ast.Constant) and last.value is False


def _held(names: Names, hook: Hook, function: ast.AST) -> tuple[str, ast.Call | None]:
    """The model that a method calls, and the call: `self.language_model(...)`."""
    for call in walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and spelled(call.func.value) == "self":
            held = names.of(call.func)
            if len(held) == 1 and held[0].kind == Kind.INSTANCE and (model := _model(names, hook, held[0])):
                return model, call
    return "", None


def _sets_stage(node: ast.ClassDef, stage: str, shape: str) -> bool:
    """Whether a class turns the last stage of its model off or on, so that the call may give no output."""
    own = "self" if shape == WRAPPER else ""  # which is not the model's
    stores = (one for one in walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    named = any(isinstance(one, ast.Constant) and one.value == stage for one in walk(node))
    return named or any(one.attr == stage and (not own or spelled(one.value) != own) for one in stores)


def _written(function: ast.AST, called: str) -> ast.Call | None:
    """The first call in a function of what is written so."""
    return next((one for one in walk(function) if isinstance(one, ast.Call) and ast.unparse(one.func) == called), None)


def lost(function: Any, name: str) -> tuple[str, str]:
    """How a function keeps a keyword from arriving, and by which `**rest`; empty where it does not."""
    args = function.args
    if name in {one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)}:
        reads = (one for one in walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
        return ("" if any(one.id == name for one in reads) else UNREAD), ""
    rest = args.kwarg.arg if args.kwarg is not None else ""
    return (REFUSED if not rest else SWALLOWED if drops(function, rest, name) else ""), rest
