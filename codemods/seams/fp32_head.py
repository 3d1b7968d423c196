"""`output_layer.forward` replaced by a product in fp32: a pre-hook casts what Megatron's own layer multiplies."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, is_taken
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import is_value, leaf, parameters

FP32 = "fp32_logits"
NOTES = (
    "the layer multiplies by itself again: with tensor and sequence parallelism it gathers, and sums gradients",
    f"`{FP32}` raises for a layer with `gradient_accumulation_fusion`; set that to False on the layer",
)


def to_pre_hook(patch: Patch) -> Rewritten | str:
    """`fp32_logits(model)`, or why the function is not exactly that."""
    layer, function = patch.target.value, patch.function
    if function is None or not _is_product(function, bound=patch.bound) or not _is_of(patch, function):
        return "it is not `linear(hidden.float(), weight.float()), None` of this layer alone"
    if not isinstance(layer, ast.Attribute):
        return f"`{patch.text(layer)}` does not say which model it is of"
    for one in patch.finding.related:
        if one.role in {"restore", "backup"}:
            return f"line {one.line} keeps the layer's own forward or puts it back"
    if older := patch.situation.options.older(patch.source.path):
        return older
    if is_taken(FP32, patch.source.tree):
        return f"the name `{FP32}` is taken"
    call = f"{FP32}({patch.text(layer.value)})"
    return Rewritten([Rewrite(patch.statement, call), *patch.leftovers()], [FP32], NOTES)


def _is_product(function: Function, *, bound: bool) -> bool:
    """One product of the hidden states, the first parameter, and a weight, both cast; and no bias."""
    nodes = list(ast.walk(function))
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Tuple) or not is_value(returned[0].elts[-1], None):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call) and leaf(node.func) != "float"]
    products = [node for node in nodes if isinstance(node, ast.BinOp)]
    if len(calls) != 1 or products or len(calls[0].args) != 2 or calls[0].keywords or leaf(calls[0].func) != "linear":
        return False
    hidden, weight = (_cast(one, nodes) for one in calls[0].args)
    given = parameters(function)[int(bound) :]
    return bool(given) and isinstance(hidden, ast.Name) and hidden.id == given[0] and leaf(weight) == "weight"


def _is_of(patch: Patch, function: Function) -> bool:
    """Whether no weight but that of the layer is read, or the one that is passed."""
    layer = ast.unparse(patch.target.value)
    kept = [one for one in patch.source.every(ast.Assign) if ast.unparse(one.value) == layer]
    known = {layer, *(ast.unparse(one.targets[0]) for one in kept), *(parameters(function)[:1] if patch.bound else ())}
    read = [node for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr == "weight"]
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == "weight"}
    return all(ast.unparse(node.value) in known for node in read) and names <= set(parameters(function))


def _cast(value: ast.expr, nodes: list[ast.AST]) -> ast.expr | None:
    """`x` of `x.float()`, or of a name that is that."""
    if isinstance(value, ast.Name):
        assigned = [node for node in nodes if isinstance(node, ast.Assign) and leaf(node.targets[0]) == value.id]
        value = assigned[-1].value if assigned else value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "float":
        return value.func.value
    return None
