"""A replacement that lacks parameters of a newer Megatron, or takes the hook and never calls it."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import AddParameters, Change, Insert, above
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import body_of, dotted, is_name, parameters
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS, HOOK_CARRIERS, HOOK_SINCE
from mcore_unpatch.megatron.known import called_with, first_parameters

PROCESSOR, CONTEXT = HOOK_ARGUMENTS
# What Megatron gives the hook: keyword -> expression inside a replacement whose first parameter is the model.
_PASSED_THROUGH = (
    "labels",
    "loss_mask",
    "input_ids",
    "position_ids",
    "attention_mask",
    "decoder_input",
    "inference_context",
    "packed_seq_params",
    "runtime_gather_output",
)


NOTE = "a stop-gap: the patch stays, and the next release may break it again"


def close_gap(patch: Patch) -> Rewritten | None:
    """The replacement with the parameters it lacks, and one that runs the hook or refuses it."""
    function, attribute, version = patch.function, patch.target.attr, patch.situation.options.target
    expected = called_with(f"{patch.owner}.{attribute}", version)
    if function is None or expected is None or attribute not in {"forward", "_postprocess", "build_schedule_plan"}:
        return None
    names = set(parameters(function))
    missing = [] if function.args.kwarg else [name for name in expected.names if name not in names]
    if not set(missing).isdisjoint(first_parameters(f"{patch.owner}.{attribute}")):
        return None  # its parameters have other names: what belongs where is not to be seen
    carries = (patch.owner, attribute) in HOOK_CARRIERS and version >= HOOK_SINCE
    calls = any(is_name(one, PROCESSOR) for one in ast.walk(function))
    changes: list[Change] = []
    if missing:
        changes.append(AddParameters(function, tuple(f"{name}=None" for name in missing)))
    if carries and not calls and PROCESSOR in {*names, *missing}:
        changes.append(_run_hook(patch, {*names, *missing}))
    return Rewritten(changes, notes=[NOTE])


def _run_hook(patch: Patch, names: set[str]) -> Insert:
    """Before the output layer the hook is called as Megatron calls it; where that place is not clear, it is refused."""
    source, function = patch.source, patch.function
    assert function is not None
    model = parameters(function)[0]
    place = _output_layer_call(function, model)
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = names | stored
    if place is None or not patch.bound or not {"hidden_states", "output_weight", *_PASSED_THROUGH} <= known:
        text = [
            f"if {PROCESSOR} is not None:",
            f'    raise NotImplementedError("this {patch.target.attr} does not run `{PROCESSOR}`")',
        ]
        return above(source, (body_of(function) or function.body)[0], "\n".join(text))
    text = [
        f"if {PROCESSOR} is not None:",
        f"    return {PROCESSOR}(",
        "        hidden_states=hidden_states,",
        f"        output_layer={model}.output_layer,",
        "        output_weight=output_weight,",
        *(f"        {name}={name}," for name in _PASSED_THROUGH),
        f"        context={CONTEXT},",
        f"        compute_language_model_loss={model}.compute_language_model_loss,",
        f"        scale_logits={model}._scale_logits,",
        f"        config={model}.config,",
        "    )",
    ]
    return above(source, place, "\n".join(text))


def _output_layer_call(function: Function, model: str) -> ast.stmt | None:
    """The last top-level statement `x, _ = model.output_layer(hidden_states, ...)` of a function."""
    found = None
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            if dotted(statement.value.func) == f"{model}.output_layer":
                found = statement
    return found
