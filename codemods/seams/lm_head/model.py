"""The model whose output layer is patched: the hook is the model's, not the layer's."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace, above
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import body_of, identifiers, is_name, is_stored, leaf, names_in, parameters

LAYER = "output_layer"
_NEW_NAME = "model"
_ANY_MODULE = {"Module", "Any"}


@dataclass(frozen=True)
class PatchedModel:
    """How the patching function names the model, and what must change for it to know it."""

    text: str
    changes: tuple[Change, ...] = ()
    layer: str = ""  # the parameter that was the layer,
    layer_line: Change | None = None  # and the line that gives it to code which still asks for it
    made_by_a_call: bool = False  # to be made once only


def find_model(patch: Patch) -> PatchedModel | str:
    """The model, or why it cannot be told."""
    assert patch.around is not None
    found = owner_of(patch.target.value, patch.around)
    if isinstance(found, str):
        return _from_callers(patch, found)
    if found is None:
        return f"`{patch.text(patch.target.value)}` cannot be shown to be a model's `{LAYER}`"
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


def _from_callers(patch: Patch, parameter: str) -> PatchedModel | str:
    """The function gets the layer alone: let it have the model, if every caller can be seen to have it."""
    around, source = patch.around, patch.source
    assert around is not None
    owner = next((node for node in source.tree.body if isinstance(node, ast.ClassDef) and around in node.body), None)
    name = owner.name if owner else around.name
    if owner is None and around not in source.tree.body:
        return f"`{around.name}` receives the layer, not the model"
    because = f"`{name}` receives the layer, not the model"
    if (owner and around.name != "__init__") or around.decorator_list:
        return because
    position = [arg.arg for arg in around.args.args].index(parameter) - bool(owner)
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and is_name(node.func, name)]
    uses = [node for node in ast.walk(source.tree) if is_name(node, name)]
    exported = any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(source.tree))
    if not calls or len(calls) != len(uses) or exported or patch.situation.files.named_elsewhere(name, source.path):
        return f"{because}, and not every caller is in this file"
    arguments = [call.args[position] for call in calls if position < len(call.args) and not _starred(call)]
    owners = [
        argument.value for argument in arguments if isinstance(argument, ast.Attribute) and argument.attr == LAYER
    ]
    if len(owners) != len(calls):
        return f"{because}, and not every caller passes `model.{LAYER}`"
    argument = next(arg for arg in around.args.args if arg.arg == parameter)
    documented = parameter in (ast.get_docstring(owner or around) or "") + (ast.get_docstring(around) or "")
    if not _may_be_a_model(argument.annotation) or documented or _NEW_NAME in identifiers(around):
        return because
    changes: list[Change] = [Replace(one, patch.text(owner_)) for one, owner_ in zip(arguments, owners, strict=True)]
    annotation = f": {patch.text(argument.annotation)}" if argument.annotation else ""
    changes.append(Replace(argument, f"{_NEW_NAME}{annotation}"))
    binding = above(source, (body_of(around) or around.body)[0], f"{parameter} = {_NEW_NAME}.{LAYER}")
    return PatchedModel(_NEW_NAME, tuple(changes), parameter, binding)


def _starred(call: ast.Call) -> bool:
    return any(isinstance(arg, ast.Starred) for arg in call.args)


def _may_be_a_model(annotation: ast.expr | None) -> bool:
    return annotation is None or leaf(annotation) in _ANY_MODULE
