"""`output_layer.forward` replaced by a function that hands the hidden states through: that function as a processor.

The known form: one function, a plain assignment to `forward` of an output layer, and if it is undone, an assignment
back in the same function. The replacement becomes a processor that the hook calls, with the names its body uses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.seams.patch import Function, Patch
from mcore_unpatch.codemods.source import Source, Span, last_line

COMPAT = "mcore_unpatch.compat"
NOTES = (
    "the hook runs once, after MTP: the output layer keeps its own forward for the MTP depths",
    "MuP: Megatron scaled what the passthrough returned; call `scale_logits` in the processor where that is wanted",
    "calls for inference keep Megatron's own path",
)
STEPS = (
    "by hand: 1. delete the assignment to `output_layer.forward`, what keeps the original and what puts it back; "
    "2. give the call of the model `labels=` and `output_processor=LogProbs()` (or `LogProbsAndEntropy()`) from "
    "`mcore_unpatch.compat`, temperature and the like in `output_processor_context={...}`; 3. use what the model "
    "returns as log-probs [b, s] and delete the projection of the hidden states; a toggle becomes the choice to pass "
    "the processor or not, and callers that cannot change their call get `attach(model, LogProbs())`"
)


@dataclass(frozen=True)
class _Form:
    patch: Patch
    model: ast.expr
    restores: list[ast.stmt]
    backups: list[ast.stmt]


def to_hook(patch: Patch) -> list[Change]:
    """The changes; empty where the form is not the known one."""
    form = _recognise(patch)
    function = patch.function
    if form is None or function is None:
        return []
    source = patch.source
    changes = [_head(source, function, patch.bound)]
    changes += [_returned(source, statement) for statement in _returns(function)]
    model = patch.text(form.model)
    call = f"attach({model}, {function.name})"
    changes.append(Change(source.span(patch.statement), f"handle = {call}" if form.restores else call, patch.statement))
    changes += [Change(source.span(statement), "handle.remove()", statement) for statement in form.restores]
    changes += [Change(_lines(source, statement), "", statement) for statement in form.backups]
    return changes


def _recognise(patch: Patch) -> _Form | None:
    function, around = patch.function, patch.around
    if (
        function is None
        or around is None
        or patch.target.attr != "forward"
        or not _is_passthrough(function, patch.bound)
    ):
        return None
    model = _model(patch.target.value, around)
    lines = {line.line: line.role for line in patch.finding.related}
    inside = [node for node in ast.walk(around) if isinstance(node, ast.Assign) and node.lineno in lines]
    restores: list[ast.stmt] = [node for node in inside if lines[node.lineno] == "restore"]
    backups: list[ast.stmt] = [node for node in inside if lines[node.lineno] == "backup"]
    if model is None or len(inside) != len(lines) or len(restores) + len(backups) != len(lines):
        return None
    if any(isinstance(node, ast.Name) and node.id == "handle" for node in ast.walk(around)):
        return None
    uses = [node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Name) and node.id == function.name]
    kept = {
        target.id
        for node in backups
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    other = [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Name) and node.id in kept and isinstance(node.ctx, ast.Load)
    ]
    if len(uses) != 1 or len(kept) != len(backups) or len(other) != len(restores):
        return None
    return _Form(patch, model, restores, backups)


def _model(layer: ast.expr, around: Function) -> ast.expr | None:
    """`m` of `m.output_layer`, through one local name."""
    if isinstance(layer, ast.Attribute) and layer.attr == "output_layer":
        return layer.value
    if isinstance(layer, ast.Name):
        values = [
            node.value
            for node in ast.walk(around)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == layer.id for t in node.targets)
        ]
        if len(values) == 1 and isinstance(values[0], ast.Attribute) and values[0].attr == "output_layer":
            return values[0].value
    return None


def _is_passthrough(function: Function, bound: bool) -> bool:
    """Whether every `return` gives back the (perhaps changed) input and None, and only known parameters are used."""
    given = _parameters(function, bound)
    returns = list(_returns(function))
    if given is None or not returns or not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    first = given[-1 if len(given) == 1 else 1 if bound else 0]
    return all(
        isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2
        and isinstance(node.value.elts[1], ast.Constant)
        and node.value.elts[1].value is None
        and any(isinstance(name, ast.Name) and name.id == first for name in ast.walk(node.value.elts[0]))
        for node in returns
    )


def _parameters(function: Function, bound: bool) -> list[str] | None:
    """The parameters by position: the layer if bound, the input, the weight; None if the body uses any other."""
    spec = function.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    rest = [arg.arg for arg in (spec.vararg, spec.kwarg) if arg is not None]
    known = names[: 3 if bound else 2]
    dropped = [*names[len(known) :], *rest]
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return known if len(known) > bound and not used & set(dropped) else None


def _returns(function: Function) -> Iterator[ast.Return]:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _head(source: Source, function: Function, bound: bool) -> Change:
    """The processor's parameters, and the old names for those that the body uses."""
    given = _parameters(function, bound) or []
    meanings = (["output_layer"] if bound else []) + ["hidden_states", "output_weight"]
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    pairs = [(old, new) for old, new in zip(given, meanings, strict=False) if old in used]
    taken = ", ".join(dict.fromkeys(["hidden_states", *(new for _, new in pairs)]))
    first = function.body[0]
    indent = source.indentation(first)
    lines = "".join(f"{indent}{old} = {new}\n" for old, new in pairs if old != new)
    start = source.span(function).start
    body = source.first_with_comments(first)
    return Change(Span(start, source.line_span(body, body).start), f"def {function.name}(*, {taken}, **_):\n{lines}")


def _returned(source: Source, statement: ast.Return) -> Change:
    assert isinstance(statement.value, ast.Tuple)
    value = statement.value.elts[0]
    text = source.text_of(source.span(value))
    simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    shown = text if simple else f"({text})"
    return Change(source.span(statement), f"return {shown}.transpose(0, 1).contiguous()", statement)


def _lines(source: Source, statement: ast.stmt) -> Span:
    return source.line_span(source.first_with_comments(statement), last_line(statement))
