"""Copies of `GPTModel.forward` or `_postprocess` with an end of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import ByHand, Example, Fix, Left, Match, PatchCodemod, Stays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
    from mcore_unpatch.codemods.source import Source

_FALLBACK = (
    "only models without `output_processor` come here, which megatron-core 0.18 and later have none of: once nothing "
    "older is supported, delete this branch, what it installs, and the tests of it"
)
# Patches of which the scanner does not see that they are for the output: they are, where they are copies.
_UNKNOWN = ("MCU601", "MCU603")


class Copies(PatchCodemod):
    """The end of the copy becomes a processor; Megatron does the rest."""

    name, title = "copies", "Copies of a forward"
    answers = ("MCU101", "MCU102", "MCU201", *_UNKNOWN)
    needs_hook = True
    does = "the end of the copy is a processor of the hook"
    order = -1  # others stand on the hook, which is free then
    examples = (
        Example(
            "MCU102",
            before="""
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def greedy(self, hidden_states, labels=None, **kwargs):
    # [s, b, h]
    logits, _ = self.output_layer(hidden_states)
    return logits.amax(-1).transpose(0, 1)


def patch(model: GPTModel):
    model._postprocess = types.MethodType(greedy, model)
""",
            after="""
from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def greedy(*, hidden_states, output_layer, **_):
    # [s, b, h]
    logits, _ = output_layer(hidden_states)
    return logits.amax(-1).transpose(0, 1)


def patch(model: GPTModel):
    attach(model, greedy)
""",
            unsafe=True,
        ),
    )
    covers = """
replacements of `GPTModel.forward` and `_postprocess` that repeat what a release of megatron-core does up to the
decoder's output, and then do something of their own
"""
    changes = """
- What Megatron does goes, statement by statement as the releases have it; a copy that lacks arguments or calls gets
  them back, and the notes list them. What follows becomes a processor, `(*, hidden_states, output_layer, ..., **_)`.
- A patch of one model becomes `attach(model, processor)`, and what undid it `handle.remove()`. Parameters that Megatron
  does not have travel in the context, `attach(..., legacy={"temperature": "temperature"})`.
"""
    applied = """
With `--unsafe-fixes`. The copy is left, with the reason and the steps, where it does something of its own before the
decoder's output or on other pipeline stages, trains MTP in its own way, asks for what the hook does not pass, is used
for more than patches, where a call of a model would not be the same without it, or where it patches the class.
"""
    by_hand = """
- **MTP and padding** are Megatron's own again: read the notes of the edit.
- **Inference** keeps Megatron's own path, and so does a schedule plan: pass the processor to `build_schedule_plan`.
- **MuP.** Logits are scaled only where the copy did so.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Copies; what only models without the hook come to is left."""
        from mcore_unpatch.codemods.seams.copies.installed import TARGETS
        from mcore_unpatch.codemods.standing import is_fallback
        from mcore_unpatch.codemods.units import units
        from mcore_unpatch.megatron.facts import HOOK_SINCE

        finding, options = match.situation.finding, match.situation.options
        if finding.rule == "MCU101" and is_fallback(finding.line, units(source.tree)):
            yield Stays(_FALLBACK)
        elif finding.target in TARGETS and options.target >= HOOK_SINCE:
            made = list(super().fix(source, match))
            if finding.rule not in _UNKNOWN or not any(isinstance(one, Left | ByHand) for one in made):
                yield from made

    def rewrite(self, patch: Patch) -> Rewritten | str | None:
        """The end as a processor."""
        from mcore_unpatch.codemods.seams.copies.installed import to_processor

        return to_processor(patch)

    def steps(self, match: Match, because: str) -> str:
        """What to make of the copy, line by line."""
        from mcore_unpatch.codemods.seams.copies.installed import steps
        from mcore_unpatch.codemods.seams.patch import find_patch

        patch = find_patch(match.situation)
        assert patch is not None
        return "\n".join([super().steps(match, because), steps(patch)])
