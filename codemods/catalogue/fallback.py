"""A patch of a model's forward that only Megatrons without the output hook come to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Match, Stays

if TYPE_CHECKING:
    from mcore_unpatch.editing.source import Source

_STAYS = (
    "only models without `output_processor` come here, which megatron-core 0.18 and later have none of: once nothing "
    "older is supported, delete this branch, what it installs, and the tests of it"
)


class Fallback(Codemod):
    """The patch stays for as long as an older release is supported."""

    name, title = "fallback", "Patches for releases without the hook"
    answers = ("MCU101",)
    examples = (
        Example(
            "MCU101",
            before="""
import inspect

from megatron.core.models.gpt.gpt_model import GPTModel

from fork.ops import forward_with_log_probs


def prepare(model: GPTModel):
    if "output_processor" in inspect.signature(model.forward).parameters:
        return
    model.forward = forward_with_log_probs.__get__(model, GPTModel)
""",
        ),
    )
    covers = """
patches of `GPTModel.forward` in code that asks whether the model takes `output_processor`, and passes it where it does
"""
    by_hand = """
- Once the oldest release that you support is 0.18, delete the branch, what it installs, and the tests of it.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """It stays, with the reason."""
        from mcore_unpatch.codemods.standing import is_fallback
        from mcore_unpatch.codemods.units import units

        if is_fallback(match.situation.finding.line, units(source.tree)):
            yield Stays(_STAYS)
