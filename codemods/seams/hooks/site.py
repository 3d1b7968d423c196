"""The wrapper that an assignment installs, how it names the original, and who else looks at that."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.seams.hooks.form import Calling
from mcore_unpatch.codemods.seams.patch import Patch, bound_to
from mcore_unpatch.codemods.syntax import is_name, is_one_of, is_stored, names_in, parameters, walk_without
from mcore_unpatch.editing.source import Function

FORWARD = "forward"


@dataclass(frozen=True)
class WrapperSite:
    """A wrapper beside its assignment, how it calls the original, and the statement that keeps that."""

    function: ast.FunctionDef
    calling: Calling
    keeps: ast.Assign | None


def find_site(patch: Patch, around: Function) -> WrapperSite | str:
    """The wrapper of a patch, or why it is not found."""
    function = patch.function
    if not isinstance(function, ast.FunctionDef) or not is_one_of(function, ast.walk(around)):
        return "the wrapper is not defined next to the assignment"
    module = bound_to(patch.value) if patch.bound else None
    if module is not None and ast.unparse(module) != ast.unparse(patch.target.value):
        return f"`{function.name}` is bound to an object other than the module"
    if sum(is_name(node, function.name) for node in ast.walk(around)) != 1:
        return f"`{function.name}` is also used elsewhere"
    if restores := [related.line for related in patch.finding.related if related.role == "restore"]:
        return f"line {restores[0]} puts the original back"
    keeps = _keeps(patch, around)
    original = ast.unparse(keeps.targets[0]) if keeps is not None else ""
    return WrapperSite(function, Calling(ast.unparse(patch.target), original, patch.bound), keeps)


def looked_at(patch: Patch, site: WrapperSite, gone: Sequence[ast.AST]) -> str:
    """Where something else sees the module's `forward` or the original, and would see another now; `gone` goes too."""
    taken = [*gone, site.function, patch.statement, *([site.keeps] if site.keeps else [])]
    names = {FORWARD, site.function.name}
    for node in walk_without(patch.source.tree, taken):
        if isinstance(node, ast.Constant) and node.value in names:
            return f"line {node.lineno} asks for `{node.value}` by name"
        if not isinstance(node, ast.Attribute | ast.Name) or patch.source.function_of(node) is not patch.around:
            continue
        if isinstance(node, ast.Attribute) and ast.unparse(node) == site.calling.target:
            return f"line {node.lineno} looks at `{site.calling.target}`"
        inner = isinstance(node, ast.Attribute) and node.attr == "__dict__" and not _is_of_another(patch, node)
        if inner or is_name(node, "vars"):
            return f"line {node.lineno} inspects the layer's attributes"
        if is_name(node, site.calling.original):
            used = patch.source.parents[node]
            if not (isinstance(used, ast.Call) and used.func is node):
                return f"line {node.lineno} passes the original on"
    return ""


def still_kept(patch: Patch, site: WrapperSite, gone: Sequence[ast.AST]) -> bool:
    """Whether other code of the function calls the original, which is kept for it then."""
    assert patch.around is not None
    taken = [*gone, site.function, *([site.keeps] if site.keeps else [])]
    return any(is_name(node, site.calling.original) for node in walk_without(patch.around, taken))


def _is_of_another(patch: Patch, node: ast.Attribute) -> bool:
    """`x.__dict__["name"]` of something that is not the method."""
    match patch.source.parents[node]:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name != FORWARD
    return False


def _keeps(patch: Patch, around: Function) -> ast.Assign | None:
    """`original = module.forward`, the only one, of a local that never is anything else."""
    assigned = [node for node in ast.walk(around) if isinstance(node, ast.Assign)]
    keeping = [node for node in assigned if ast.unparse(node.value) == ast.unparse(patch.target)]
    given = parameters(around)
    if any(_times_stored(root, around) > (root not in given) for root in names_in(patch.target)):
        return None
    match keeping:
        case [ast.Assign(targets=[ast.Name(id=name)]) as only] if _times_stored(name, around) == 1:
            return only if patch.source.owns_lines(only) else None
    return None


def _times_stored(name: str, scope: ast.AST) -> int:
    return sum(is_stored(node, name) for node in ast.walk(scope))
