"""The wrapper that an assignment installs, a function beside it or of the file, and how it names the original."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.hooks.form import Calling
from mcore_unpatch.codemods.seams.patch import Patch, bound_to
from mcore_unpatch.codemods.seams.said import CommentCollector
from mcore_unpatch.codemods.source import Function, last_line
from mcore_unpatch.codemods.syntax import (
    is_name,
    is_one_of,
    is_stored,
    names_in,
    names_outside,
    parameters,
)

_NOT_BESIDE = "the wrapper is not defined next to the assignment"


@dataclass(frozen=True)
class WrapperSite:
    """A wrapper, how it calls the original, and what changes around it."""

    function: ast.FunctionDef
    calling: Calling
    own: bool  # each module has an original of its own, also in a loop
    changes: tuple[Change, ...] = ()


def find_site(patch: Patch, around: Function) -> WrapperSite | str:
    """The wrapper of a patch, or why it is not found."""
    function = patch.function
    if not isinstance(function, ast.FunctionDef):
        return _NOT_BESIDE
    if patch.bound and not _is_the_module(patch, bound_to(patch.value)):
        return f"`{function.name}` is bound to an object other than the module"
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
    return WrapperSite(function, Calling(ast.unparse(patch.target), original, patch.bound), of_the_module)


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
    return WrapperSite(function, calling, False, tuple(_without_keeping(patch, kept[0], function)))


def _without_keeping(patch: Patch, gone: ast.stmt, function: ast.FunctionDef) -> Iterator[Change]:
    """What kept the original goes; what was said of it goes to the function."""
    said = CommentCollector(patch.source)
    said.between(patch.source.first_with_comments(gone), last_line(gone))
    yield from remove(patch.source, [gone], with_comments=True)
    if said.lines():
        yield above(patch.source, function, "\n".join(said.lines()))


def _is_the_module(patch: Patch, node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node) == ast.unparse(patch.target.value)


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
