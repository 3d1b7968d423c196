"""Logits in fp32: an output layer whose `forward` was replaced by a product in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Fix, Match, PatchCodemod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
    from mcore_unpatch.codemods.source import Source


class Fp32Head(PatchCodemod):
    """A pre-hook casts what the layer multiplies."""

    name, title = "fp32-head", "Logits in fp32"
    answers = ("MCU403",)
    order = -1  # before the wrappers, of which it is none
    does = "a pre-hook casts the hidden states and the weight to fp32"
    not_plain = "it is not a plain assignment"
    examples = (
        Example(
            "MCU403",
            before="""
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    layer = model.output_layer

    def fp32_forward(input_, weight=None, runtime_gather_output=None):
        if weight is None:
            weight = layer.weight
        return torch.nn.functional.linear(input_.float(), weight.float()), None

    model.output_layer.forward = fp32_forward
""",
            after="""
from mcore_unpatch.compat import fp32_logits
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    fp32_logits(model)
""",
            unsafe=True,
        ),
        Example(
            "MCU403",
            before="""
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    def fp32_forward(self, input_, weight=None, runtime_gather_output=None):
        return torch.nn.functional.linear(input_, self.weight).float(), None  # rounded before it is cast

    model.output_layer.forward = fp32_forward.__get__(model.output_layer)
""",
            unsafe=True,
        ),
    )
    covers = """
`model.output_layer.forward` replaced by `linear(hidden.float(), weight.float()), None`
"""
    changes = """
- The assignment becomes `fp32_logits(model)`: a forward pre-hook that casts the hidden states and hands the layer its
  weight in fp32, as its argument `weight`. Logits and gradients are those of the same product
  ([what each path scores in](../compat-precision.md)).
- A wrapper that casts what the original returns is one of the [forward hooks](forward-hooks.md).
"""
    applied = """
With `--unsafe-fixes`: the layer does again what the function left out, gathering under sequence parallelism and summing
gradients over tensor-parallel ranks. Any other function is left with the steps: one that rounds before it casts, that
scales, caps or adds a bias, or that multiplies by another weight.
"""
    by_hand = """
- **Log-probs** need no fp32 logits: `LogProbs` as `output_processor=` never rounds them.
- **`gradient_accumulation_fusion`**: set it to False on the output layer; a cast weight has no `main_grad`.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Those that multiply in fp32 alone."""
        if match.situation.finding.answer == "lm-head-fp32-product":
            yield from super().fix(source, match)

    def rewrite(self, patch: Patch) -> Rewritten | str:
        """The pre-hook."""
        from mcore_unpatch.codemods.seams.fp32_head import to_pre_hook

        return to_pre_hook(patch)
