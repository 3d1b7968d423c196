"""Value heads: the output layer of a built model replaced by a linear layer of width one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Fix, Match, PatchCodemod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
    from mcore_unpatch.editing.source import Source


class ValueHeads(PatchCodemod):
    """The layer becomes the model's output processor."""

    name, title = "value-heads", "Value heads"
    answers = ("MCU501",)
    needs_hook = True
    does = "the value head is the model's output processor"
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
        model.value_head.output_layer.reset_parameters()
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
- The assignment becomes `add_value_head(model, Layer(hidden, 1))`: the same layer, called by the hook. The conditions
  around it stay. Values, gradients and Megatron's checkpoints are the same ([value heads](../compat-value-head.md)).
- Reads of the layer in the lines below become `model.value_head.output_layer`. Functions of the repository that speak
  of critics or value heads read `output_layer_of(model)`, the layer of a critic and of any other model.
"""
    applied = """
With `--unsafe-fixes`, because the layer and its parameters have another name in the model. Where it is not exactly
this, the table has the steps:

- the layer does not say a width of one (`output_size=1`, `out_features=1`, the second argument, or the default of its
  class in the same file), is a plain `torch.nn.Linear`, or is made somewhere else;
- the model's own layer is kept or put back, or the layer is set with `setattr`;
- the repository gives models to Megatron-Bridge or mbridge (`AutoBridge`), or the file is part of a bridge: bridges
  find parameters by name, and the head would be left out of what they load and export;
- a patch of `GPTModel.forward` or `_postprocess` stays below it;
- a function of the repository that speaks of critics or value heads names `"output_layer.weight"` in another way than
  at the end or in a part of a name: it would not find it.
"""
    by_hand = """
- **Other lines that read or name `output_layer`** are listed with file and line. Those that meet actors alone stay.
- **Megatron-Bridge and mbridge** look parameters up by name, and neither load nor export the head by its new one:
  critics that are handed to them keep the replaced layer, or a subclass of GPTModel that sets it in `__init__`.
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
        """What to write, and where else the layer is read."""
        from mcore_unpatch.codemods.seams.value_head import find_places, steps

        return steps(because, match.situation.once(find_places))
