"""How a wrapper comes to the assignment: as a function beside it or of the file, from a factory, or by `partial`.

With it, how it names the original: a local, an attribute of the module, a parameter of the factory or of its own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Header, Rewrite, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.hooks.form import Calling
from mcore_unpatch.codemods.seams.patch import Patch, bound_to, defined, function_name
from mcore_unpatch.codemods.seams.said import CommentCollector
from mcore_unpatch.codemods.source import Function, Source, last_line
from mcore_unpatch.codemods.syntax import (
    body_of,
    is_name,
    is_one_of,
    is_stored,
    leaf,
    names_in,
    names_outside,
    parameters,
    walk_own,
)

_NOT_BESIDE = "the wrapper is not a function beside the assignment"
LAMBDA = "wrapper"
_NOT_BOUND = "`{}` is bound to another object than the module"


@dataclass(frozen=True)
class WrapperSite:
    """A wrapper, how it calls the original, what is registered, and what changes around it."""

    function: ast.FunctionDef
    calling: Calling
    hook: str
    own: bool  # each module has an original of its own, also in a loop
    changes: tuple[Change, ...] = ()
    snippet: Source | None = None  # the function by itself, where it is an expression


def find_site(patch: Patch, around: Function) -> WrapperSite | str:
    """The wrapper of a patch, or why it is not found."""
    value = patch.value
    if isinstance(value, ast.Lambda):
        return _from_lambda(patch, around, value)
    if isinstance(value, ast.Call) and leaf(value.func) == "partial":
        return _from_partial(patch, around, value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not patch.bound:
        factory = defined(patch.source.tree, value.func.id, around)
        if isinstance(factory, ast.FunctionDef):
            return _Factory(patch, around, factory, value).site()
        return f"`{value.func.id}` is not a function of this file"
    return _plain(patch, around)


def _plain(patch: Patch, around: Function) -> WrapperSite | str:
    function = patch.function
    if not isinstance(function, ast.FunctionDef):
        return _NOT_BESIDE
    if patch.bound and not _is_the_module(patch, bound_to(patch.value)):
        return _NOT_BOUND.format(function.name)
    inside, kept = is_one_of(function, ast.walk(around)), _kept(patch, around)
    if inside and kept is None and patch.bound and (of_class := _kept_of_class(patch, around, function)):
        return of_class
    of_the_module = isinstance(kept, ast.Attribute) and _is_the_module(patch, kept.value)
    if not inside and not (of_the_module and patch.bound):
        return _NOT_BESIDE
    if because := _used_elsewhere(patch, function, around if inside else patch.source.tree):
        return because
    original = ast.unparse(kept) if kept is not None else ""
    if isinstance(kept, ast.Attribute) and of_the_module and patch.bound and parameters(function):
        original = f"{parameters(function)[0]}.{kept.attr}"
    return WrapperSite(
        function, Calling(ast.unparse(patch.target), original, patch.bound), function.name, of_the_module
    )


def _kept_of_class(patch: Patch, around: Function, function: ast.FunctionDef) -> WrapperSite | None:
    """`original = type(module).forward`, which is called with the module."""
    module, attribute = ast.unparse(patch.target.value), patch.target.attr
    texts = {f"type({module}).{attribute}", f"{module}.__class__.{attribute}"}
    kept = [one for one in ast.walk(around) if isinstance(one, ast.Assign) and ast.unparse(one.value) in texts]
    name = kept[0].targets[0] if len(kept) == 1 and patch.source.owns_lines(kept[0]) else None
    if not isinstance(name, ast.Name) or _times_stored(name.id, around) != 1 or len(kept[0].targets) > 1:
        return None
    if name.id in names_outside(around, [kept[0], function]) or _used_elsewhere(patch, function, around):
        return None
    calling = Calling(ast.unparse(patch.target), name.id, bound=True, unbound=True)
    return WrapperSite(function, calling, function.name, False, tuple(_without_keeping(patch, [*kept], function)))


def _without_keeping(patch: Patch, gone: list[ast.stmt], function: ast.FunctionDef) -> Iterator[Change]:
    """What kept the original goes; what was said of it goes to the function."""
    said = CommentCollector(patch.source)
    for one in gone:
        said.between(patch.source.first_with_comments(one), last_line(one))
    yield from remove(patch.source, gone, with_comments=True)
    if said.lines():
        yield above(patch.source, function, "\n".join(said.lines()))


def _from_lambda(patch: Patch, around: Function, value: ast.Lambda) -> WrapperSite | str:
    """`lambda *args, **kwargs: original(*args, **kwargs) * 2`, as a function that returns this."""
    if value.lineno != value.end_lineno:
        return "the wrapper is a lambda of several lines"
    text = f"def {LAMBDA}({ast.unparse(value.args)}):\n    return {patch.text(value.body)}\n"
    snippet, kept = Source(patch.source.path, text.encode()), _kept(patch, around)
    function = snippet.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    calling = Calling(ast.unparse(patch.target), ast.unparse(kept) if kept is not None else "")
    return WrapperSite(function, calling, LAMBDA, own=False, snippet=snippet)


def _from_partial(patch: Patch, around: Function, value: ast.Call) -> WrapperSite | str:
    """`functools.partial(wrapper, module.forward)`: the original is the first parameter."""
    match value:
        case ast.Call(args=[ast.Name(id=name), given], keywords=[]):
            function = defined(patch.source.tree, name, around)
        case _:
            return "`partial` is given more than a wrapper and the original"
    if not isinstance(function, ast.FunctionDef):
        return f"`{name}` is not a function of this file"
    if not _is_original(patch, around, given):
        return f"`{patch.text(given)}` cannot be shown to be the module's own forward"
    if because := _used_elsewhere(patch, function, patch.source.tree):
        return because
    return WrapperSite(function, Calling(ast.unparse(patch.target), given=True), name, own=True)


class _Factory:
    """A function that makes the wrapper: `make(module.forward, ...)`, `make(module, ...)`."""

    def __init__(self, patch: Patch, around: Function, factory: ast.FunctionDef, call: ast.Call) -> None:
        self.patch, self.around, self.factory, self.call = patch, around, factory, call
        self.name, self.body = factory.name, body_of(factory)

    def site(self) -> WrapperSite | str:
        """Without what it was given for the original's sake."""
        last = self.body[-1]
        returned = [node for node in walk_own(self.factory) if isinstance(node, ast.Return)]
        inner, bound = function_name(last.value) if isinstance(last, ast.Return) and last.value else ("", False)
        made = [one for one in self.body if isinstance(one, ast.FunctionDef) and one.name == inner]
        if returned != [last] or len(made) != 1 or self.factory.decorator_list:
            return f"`{self.name}` does more than return a function that it makes"
        for function, scope in ((self.factory, self.patch.source.tree), (made[0], self.factory)):
            if because := _used_elsewhere(self.patch, function, scope):
                return because
        given = self._given()
        if given is None:
            return f"how `{self.name}` takes its arguments is not supported"
        to = bound_to(last.value) if bound else None  # type: ignore[attr-defined]
        if bound and not (isinstance(to, ast.Name) and to.id in given and _is_the_module(self.patch, given[to.id])):
            return _NOT_BOUND.format(inner)
        return self._without_the_original(made[0], given, last if bound else None)

    def _given(self) -> dict[str, ast.expr] | None:
        """The arguments by parameter; None where they are passed or taken in other ways than by position or name."""
        spec, source = self.factory.args, self.patch.source
        names = [one.arg for one in spec.args]
        odd = bool(spec.posonlyargs or spec.vararg or spec.kwarg) or len(self.call.args) > len(names)
        odd |= any(isinstance(one, ast.Starred) for one in self.call.args) or None in [
            one.arg for one in self.call.keywords
        ]
        odd |= any("#" in source.line(line) for line in range(self.factory.lineno, self.factory.body[0].lineno))
        given = dict(zip(names, self.call.args, strict=False))
        given |= {one.arg: one.value for one in self.call.keywords if one.arg is not None}
        return None if odd else given

    def _without_the_original(
        self, function: ast.FunctionDef, given: dict[str, ast.expr], bound: ast.stmt | None
    ) -> WrapperSite | str:
        originals = [name for name, one in given.items() if _is_original(self.patch, self.around, one)]
        modules = [name for name, one in given.items() if _is_the_module(self.patch, one)]
        gone: list[ast.stmt] = []
        if len(originals) == 1:
            original, dropped = originals[0], originals
        elif not originals and len(modules) == 1:
            place = f"{modules[0]}.{self.patch.target.attr}"
            keeping = [one for one in self.body if isinstance(one, ast.Assign) and ast.unparse(one.value) == place]
            target = keeping[0].targets[0] if len(keeping) == 1 and len(keeping[0].targets) == 1 else None
            if not isinstance(target, ast.Name) or not self.patch.source.owns_lines(keeping[0]):
                return f"`{self.name}` does not keep the original in one name"
            original, dropped, gone = target.id, modules, [*keeping]
        else:
            return f"which argument of `{self.name}` is the original is not clear"
        around = names_outside(self.factory, [function, *gone, *([bound] if bound else [])])
        stored = sum(is_stored(node, original) for node in ast.walk(self.factory))
        if (
            original in around
            or stored != len(gone)
            or any(is_stored(node, dropped[0]) for node in ast.walk(self.factory))
        ):
            return f"`{self.name}` does more with the original than to call it once"
        if gone and dropped[0] in around | names_in(function):
            dropped = []
        changes = list(_without_keeping(self.patch, gone, function))
        changes += [Rewrite(bound, f"return {function.name}")] if bound else []
        changes += [Header(self.factory, _without(self.factory.args, dropped[0]))] if dropped else []
        leaving = [given[name] for name in dropped]
        passed = [self.patch.text(one) for one in self.call.args if not is_one_of(one, leaving)]
        passed += [self.patch.source.text(one) for one in self.call.keywords if not is_one_of(one.value, leaving)]
        calling = Calling(ast.unparse(self.patch.target), original, bound is not None)
        return WrapperSite(function, calling, f"{self.name}({', '.join(passed)})", True, tuple(changes))


def _without(spec: ast.arguments, name: str) -> str:
    """Parameters without one of them."""
    left = copy.deepcopy(spec)
    positional = [None] * (len(spec.args) - len(spec.defaults)) + left.defaults
    pairs = [(one, value) for one, value in zip(left.args, positional, strict=True) if one.arg != name]
    left.args, left.defaults = [one for one, _ in pairs], [value for _, value in pairs if value is not None]
    named = [one for one in zip(left.kwonlyargs, left.kw_defaults, strict=True) if one[0].arg != name]
    left.kwonlyargs, left.kw_defaults = [one for one, _ in named], [value for _, value in named]
    return ast.unparse(left)


def _is_the_module(patch: Patch, node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node) == ast.unparse(patch.target.value)


def _is_original(patch: Patch, around: Function, node: ast.expr) -> bool:
    """`module.forward`, or what keeps it."""
    kept = _kept(patch, around)
    return ast.unparse(node) in {ast.unparse(patch.target), *([ast.unparse(kept)] if kept else [])}


def _used_elsewhere(patch: Patch, function: ast.FunctionDef, scope: ast.AST) -> str:
    """Why a function cannot become another: something else uses it."""
    named = sum(is_name(node, function.name) for node in ast.walk(scope))
    public = function in patch.source.tree.body
    texts = {node.value for node in patch.source.every(ast.Constant)} if public else set()
    if named != 1 or function.name in texts or (public and _is_named(patch, function.name)):
        return f"`{function.name}` is also used elsewhere"
    return ""


def _is_named(patch: Patch, name: str) -> bool:
    return patch.situation.files.named_elsewhere(name, patch.source.path)


def _kept(patch: Patch, around: Function) -> ast.Name | ast.Attribute | None:
    """What alone is read from the module's forward: a local that never is anything else, or an attribute."""
    target = ast.unparse(patch.target)
    places = [
        place
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == target
        for place in node.targets
    ]
    given = parameters(around)
    for root in names_in(patch.target):
        if _times_stored(root, around) > (root not in given):
            return None
    place = places[0] if len(places) == 1 else None
    if isinstance(place, ast.Name):
        return place if _times_stored(place.id, around) == 1 else None
    return place if isinstance(place, ast.Attribute) else None


def _times_stored(name: str, scope: ast.AST) -> int:
    return sum(is_stored(node, name) for node in ast.walk(scope))
