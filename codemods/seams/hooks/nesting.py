"""Which of two wrappers of one module is inside the other: one that a model puts in place while it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.imported import imported
from mcore_unpatch.codemods.seams.hooks.form import Hooked
from mcore_unpatch.codemods.seams.hooks.module import behind, holder
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.syntax import dotted, is_name, is_one_of, leaf

_ASKS = {"getattr", "hasattr", "isinstance", "type", "id"}


def is_made_inside(patch: Patch | None, outer: Hooked) -> bool:
    """Whether a patch of a model's own part is made before anybody else has the model, and stays inside `outer`.

    Then a hook in the place of `outer` runs around it as `outer` did.
    """
    if patch is None or patch.around is None or patch.around.name != "__init__" or not patch.around.args.args:
        return False
    source, own = patch.source, patch.around.args.args[0].arg
    home = source.parents[patch.around]
    if not isinstance(home, ast.ClassDef) or outer.around is None or is_one_of(outer.around, ast.walk(home)):
        return False
    known = imported(source)
    bases = [known.get(dotted(one).partition(".")[0], "") for one in home.bases]
    if not bases or not all(one.startswith("megatron.core") for one in bases):
        return False
    calls = [one for one in ast.walk(patch.around) if isinstance(one, ast.Call)]
    if any(_is_its_own(one, own) for one in ast.walk(patch.around)):
        return False  # a part that it sets here may come from others
    before = [one for one in calls if one.lineno < patch.statement.lineno]
    part = patch.target.value
    given = {own, ast.unparse(part), ast.unparse(behind(part, patch.around))}
    is_own = is_name(holder(part, patch.around), own)
    return is_own and not any(_hands_out(one, own, given) for one in before)


def _hands_out(call: ast.Call, own: str, given: set[str]) -> bool:
    """Whether others get the model or its part: as an argument, or in a method of the model's own."""
    if leaf(call.func) in _ASKS:
        return False
    passed = [*call.args, *(one.value for one in call.keywords)]
    texts = {ast.unparse(node) for one in passed for node in _plain(one)}
    of_its_own = isinstance(call.func, ast.Attribute) and is_name(call.func.value, own)
    return of_its_own or bool(given & texts)


def _plain(node: ast.expr) -> Iterator[ast.AST]:
    """The names and attributes of an argument, whole; calls inside of it are asked by themselves."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield node
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _plain(child) if isinstance(child, ast.expr) else ()


def _is_its_own(node: ast.AST, own: str) -> bool:
    """`self.part = ...`"""
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return stored and is_name(node.value, own)  # type: ignore[attr-defined]
