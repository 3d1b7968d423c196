"""The model whose output layer is patched: the hook is the model's, not the layer's."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import is_stored, names_in, parameters

LAYER = "output_layer"
_NEW_NAME = "model"
_ANY_MODULE = {"Module", "Any"}


@dataclass(frozen=True)
class PatchedModel:
    """How the patching function names the model."""

    text: str
    made_by_a_call: bool = False  # to be made once only


def find_model(patch: Patch) -> PatchedModel | str:
    """The model, or why it cannot be told."""
    assert patch.around is not None
    found = owner_of(patch.target.value, patch.around)
    if isinstance(found, str):
        return f"`{patch.around.name}` receives the layer, not the model"
    if found is None:
        return f"`{patch.text(patch.target.value)}` is not known to be a model's `{LAYER}`"
    given = set(parameters(patch.around))
    for name in sorted(names_in(found)):
        if sum(is_stored(node, name) for node in ast.walk(patch.around)) > (name not in given):
            return f"`{name}` is assigned more than once"
    calls = any(isinstance(node, ast.Call) for node in ast.walk(found))
    return PatchedModel(patch.text(found), made_by_a_call=calls)


def owner_of(layer: ast.expr, around: Function) -> ast.expr | str | None:
    """`m` of `m.output_layer`, through local names and attributes; the name of a parameter that is the layer."""
    if isinstance(layer, ast.Attribute) and layer.attr == LAYER:
        return layer.value
    if isinstance(layer, ast.Call) and isinstance(layer.func, ast.Name) and layer.func.id == "getattr":
        named = len(layer.args) > 1 and isinstance(layer.args[1], ast.Constant) and layer.args[1].value == LAYER
        return layer.args[0] if named else None
    values = [
        node.value
        for node in ast.walk(around)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and any(ast.unparse(target) == ast.unparse(layer) for target in _targets(node))
    ]
    if len(values) == 1 and values[0] is not None:
        return owner_of(values[0], around)
    if not values and isinstance(layer, ast.Name) and layer.id in {arg.arg for arg in around.args.args}:
        return layer.id
    return None


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
