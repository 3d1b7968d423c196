"""The flag that asked the patched `GPTModel.forward` for log-probs: `kwargs["flag"] = True` becomes the hook arguments.

NeMo RL and its forks write it in this one way. Every other place is left, with the steps to take there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mcore_unpatch.codemods.catalogue.nemo_rl import COMPAT, FLAG, flag_places, fusion_kwargs
from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.syntax import is_stored, is_value, parameters
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS

STEPS = (
    f"Nothing reads `{FLAG}` any more. Where it was true, pass the model `**{fusion_kwargs('model')}` from `{COMPAT}`, "
    f"with `labels` as before; where it was false, pass nothing; where it is read, ask for `{HOOK_ARGUMENTS[0]}`"
)


@dataclass
class Flags:
    """What becomes of the flag in one file."""

    changes: list[Rewrite] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # that change
    left: list[int] = field(default_factory=list)


def find_flags(source: Source) -> Flags:
    """Every place of a file that has to do with the flag."""
    flags = Flags()
    for node in flag_places(source):
        match source.parents[node], source.parents.get(source.parents[node]):
            case ast.Subscript(value=mapping) as target, ast.Assign(targets=[only], value=value) as statement if (
                only is target and is_value(value, True) and (model := _model_of(mapping, statement, source))
            ):
                flags.changes.append(Rewrite(statement, f"{source.text(mapping)}.update({fusion_kwargs(model)})"))
                flags.lines.append(node.lineno)
            case _:
                flags.left.append(node.lineno)
    return flags


def _model_of(mapping: ast.expr, statement: ast.stmt, source: Source) -> str:
    """The model that is called with `**mapping` in the same function, known before the statement; empty if unclear."""
    function, name = source.function_of(statement), source.text(mapping)
    if function is None:
        return ""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    unpacking = [
        call for call in calls if any(one.arg is None and source.text(one.value) == name for one in call.keywords)
    ]
    models = {_called_or_passed(call, source) for call in unpacking}
    text = models.pop() if len(models) == 1 else ""
    root = text.partition(".")[0]
    before = [node for node in ast.walk(function) if is_stored(node, root) and node.lineno < statement.lineno]  # type: ignore[attr-defined]
    return text if root and (root in parameters(function) or before) else ""


def _called_or_passed(call: ast.Call, source: Source) -> str:
    """`model(...)`, or the argument of `forward_step(model, ...)` that is called a model."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
    named += [argument for argument in call.args if dotted(argument).endswith("model")]
    callee = dotted(call.func)
    return callee if "model" in callee.rpartition(".")[2] or not named else dotted(named[0])
