"""Value heads: the output layer of a built model replaced by a linear layer of width one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Fix, Match, PatchCodemod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
    from mcore_unpatch.editing.source import Source


class ValueHeads(PatchCodemod):
    """The layer is given to compat, which holds it under the same name."""

    name, title = "value-heads", "Value heads"
    answers = ("MCU501",)
    does = "the value head is added by compat, under the same name"
    not_plain = "it is not a plain assignment"
    examples = (
        Example(
            "MCU501",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def model_provider(config, role, post_process=True, **kwargs):
    model = GPTModel(config, post_process=post_process, **kwargs)
    if post_process and role == "critic":
        model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
        model.output_layer.reset_parameters()
    return model
""",
            after="""
from mcore_unpatch.compat import add_value_head
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def model_provider(config, role, post_process=True, **kwargs):
    model = GPTModel(config, post_process=post_process, **kwargs)
    if post_process and role == "critic":
        add_value_head(model, LinearForLastLayer(config.hidden_size, 1, config=config))
        model.output_layer.reset_parameters()
    return model
""",
            unsafe=True,
        ),
        Example(
            "MCU501",
            before="""
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    # Megatron calls its output layer with `weight=`, which this one does not take.
    model.output_layer = torch.nn.Linear(config.hidden_size, 1)
""",
            unsafe=True,
        ),
    )
    covers = """
`model.output_layer = Layer(hidden, 1)` on a built model, as veRL, slime, miles, AReaL and RLinf make their critics
"""
    changes = """
The assignment becomes `add_value_head(model, Layer(hidden, 1))`. The layer is `model.output_layer` as before: values,
gradients, names of parameters and checkpoints are the same ([value heads](../compat-value-head.md)). The conditions
around it stay.
"""
    applied = """
With `--unsafe-fixes`, because what a critic cannot do raises from then on. Where it is not exactly this, the table has
the steps:

- the layer does not say a width of one (`output_size=1`, `out_features=1`, the second argument, or the default of its
  class in the same file), is a plain `torch.nn.Linear`, or is made somewhere else;
- the model's own layer is kept or put back, or the layer is set with `setattr`.
"""
    by_hand = """
- **MTP layers** are refused in a critic, and so are embeddings that are tied over several pipeline stages.
- **Labels.** A critic that is called with labels raises, where it returned zeros.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """The layer itself; what its state goes through has no other place."""
        if match.target.endswith(".output_layer"):
            yield from super().fix(source, match)

    def rewrite(self, patch: Patch) -> Rewritten | str:
        """Compat's value head around the same layer."""
        from mcore_unpatch.codemods.seams.value_head import to_value_head

        return to_value_head(patch)

    def steps(self, match: Match, because: str) -> str:
        """What to write."""
        from mcore_unpatch.codemods.seams.value_head import steps

        return steps(because)
