"""A subclass of Megatron's model, or a wrapper around one, that keeps the output hook from arriving."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import AddParameters, Argument
from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Left, Match
from mcore_unpatch.codemods.syntax import dotted, leaf, parameters
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import WRAPPER
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS, HOOK_SINCE
from mcore_unpatch.megatron.layout import HYBRID_MODEL, MAMBA_MODEL
from mcore_unpatch.megatron.versions import show

_MODEL_ARGUMENTS = {"labels", "decoder_input"}


class DropsHook(Codemod):
    """The method takes the two parameters and hands them on."""

    name, title = "drops-the-hook", "Models that drop the output hook"
    answers = ("MCU105",)
    does = "takes the output hook and passes it on"
    examples = (
        Example(
            "MCU105",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel


class VisionModel(GPTModel):
    def forward(
        self,
        input_ids,
        position_ids,
        attention_mask,
        labels=None,
        *,
        images=None,
    ):
        return super().forward(
            input_ids,
            position_ids,
            attention_mask,
            decoder_input=self.embed(input_ids, images),
            labels=labels,
        )
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


class VisionModel(GPTModel):
    def forward(
        self,
        input_ids,
        position_ids,
        attention_mask,
        labels=None,
        *,
        images=None,
        output_processor=None,
        output_processor_context=None,
    ):
        return super().forward(
            input_ids,
            position_ids,
            attention_mask,
            decoder_input=self.embed(input_ids, images),
            labels=labels,
            output_processor=output_processor,
            output_processor_context=output_processor_context,
        )
""",
            unsafe=True,
        ),
    )
    covers = """
subclasses of `GPTModel` that override `forward` or `_postprocess`, and modules that call a model they hold
"""
    applied = """
With `--unsafe-fixes`, where the method calls `super()`'s own, `self._postprocess` of Megatron, or the one model that it
holds, and every release that the project asks for has the hook.
"""
    by_hand = """
- **A method that makes the output itself** has no call to pass the hook to: call the processor there.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Two parameters more, and two arguments in each call that makes the output."""
        function, situation = match.node, match.situation
        if not isinstance(function, Function) or match.target.rpartition(".")[0] in (HYBRID_MODEL, MAMBA_MODEL):
            return
        calls = list(_calls(source, function, situation.finding.shape == WRAPPER))
        oldest = min(situation.options.pinned(source.path), default=HOOK_SINCE)
        if older := situation.options.older(source.path):
            yield Left(older)
        elif oldest < HOOK_SINCE:
            yield Left(f"the project allows megatron-core {show(oldest)} too, whose methods do not take the hook")
        elif not calls:
            yield Left(f"line {function.lineno} makes the output itself, or passes it to several models")
        else:
            missing = [name for name in HOOK_ARGUMENTS if name not in parameters(function)]
            if missing:
                yield AddParameters(function, tuple(f"{name}=None" for name in missing))
            for call in calls:
                yield from (Argument(call, f"{name}={name}") for name in HOOK_ARGUMENTS)


def _calls(source: Source, function: Function, wraps: bool) -> Iterator[ast.Call]:
    """The calls that make the output: of the base's own method, or of the one model that a wrapper holds."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    around = source.parents[function]
    overridden = {one.name for one in getattr(around, "body", ()) if isinstance(one, Function)}
    if wraps:
        held = [one for one in calls if dotted(one.func).startswith("self.") and _is_of_a_model(one)]
        yield from held if len({dotted(one.func) for one in held}) == 1 else ()
        return
    for call in calls:
        of_base = ast.unparse(call.func) == f"super().{function.name}"
        own = dotted(call.func) == "self._postprocess" and leaf(call.func) not in overridden
        if (of_base or own) and not {keyword.arg for keyword in call.keywords} & set(HOOK_ARGUMENTS):
            yield call


def _is_of_a_model(call: ast.Call) -> bool:
    return bool({keyword.arg for keyword in call.keywords} & _MODEL_ARGUMENTS)
