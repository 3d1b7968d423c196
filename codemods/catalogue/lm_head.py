"""LM-head wrappers: `output_layer.forward` replaced on an instance, to have hidden states in place of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Match, PatchCodemod

if TYPE_CHECKING:
    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten

_USE = (
    "2. Where the model is at hand, write `handle = attach(model, HeadInputs())`, both from `mcore_unpatch.compat`. "
    "The model then returns hidden states as before; the weight is the processor's `.weight`, a toggle becomes "
    "`when=lambda: ...`, and `handle.remove()` undoes it.\n"
    "3. Better: call the model with `labels=` and `output_processor=LogProbs()` or `LogProbsAndEntropy()`, put the "
    "temperature into `output_processor_context={...}`, use the result as log-probs [b, s], and delete the projection."
)


class LmHead(PatchCodemod):
    """The wrapper becomes a processor that the model is given."""

    name, title = "lm-head", "LM-head wrappers"
    answers = ("MCU103",)
    needs_hook = True
    does = "the model returns hidden states through the hook"
    not_plain = "it is not a plain assignment"
    examples = (
        Example(
            "MCU103",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel

from fork.ops import chunked_log_probs


def log_probs(model: GPTModel, ids, labels):
    captured = {}
    layer = model.output_layer
    original = layer.forward

    def passthrough(hidden_states, weight=None, runtime_gather_output=None):
        captured["weight"] = weight
        return hidden_states, None

    layer.forward = passthrough
    try:
        hidden = model(ids, None, None)
    finally:
        layer.forward = original
    return chunked_log_probs(hidden, captured["weight"], labels)
""",
            after="""
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel

from fork.ops import chunked_log_probs


def log_probs(model: GPTModel, ids, labels):
    captured = {}

    def keep_weight(weight):
        captured["weight"] = weight

    handle = attach(model, HeadInputs(keep=keep_weight))
    try:
        hidden = model(ids, None, None)
    finally:
        handle.remove()
    return chunked_log_probs(hidden, captured["weight"], labels)
""",
            unsafe=True,
        ),
    )
    covers = """
`output_layer.forward` replaced on an instance by a function that returns the hidden states (the SkyRL family)
"""
    changes = """
- `m.output_layer.forward = f`, `types.MethodType(f, ...)` or `f.__get__(...)`, directly or through a name or
  attribute for the layer, becomes `attach(m, HeadInputs())`: our processor returns what the passthrough returned.
  A weight that it captured is kept in the same place, `HeadInputs(keep=...)`.
- A passthrough that is on at times (`if FLAG["on"]: return hidden, None`, else the original) becomes `attach(...,
  when=lambda: FLAG["on"])`.
- What puts the original back, in the same function or another one, becomes `handle.remove()`; what only kept the
  original goes.
- Every other form (one that gathers, casts or records, a function that is given the layer) is left, reported with the
  reason and the steps to take, and marked with a comment if `--annotate` is given.
"""
    applied = """
Always `unsafe`: nobody upstream has this code, so there is nothing to compare it with. Read the edit, then run with
`--unsafe-fixes`.
"""
    by_hand = """
- **Go all the way.** With `labels=labels` and `output_processor=LogProbs()` from `mcore_unpatch.compat` the model
  returns the log-probs themselves, `[b, s]`, and the projection of the hidden states can go; `LogProbsAndEntropy()`
  gives both. Temperature goes into `output_processor_context={"temperature": t}`.
- **The weight** is always the one in use, the tied embedding's or the layer's own. A passthrough was given None
  where it was the layer's own.
- **MTP.** The wrapper was called once per MTP depth as well; the hook runs once, after MTP, and the layer keeps its
  own forward for the depths.
- **MuP.** Megatron scaled what the passthrough returned, and `HeadInputs` does as well.
- **Inference** keeps Megatron's own path under `attach`.
"""

    def rewrite(self, patch: Patch) -> Rewritten | str:
        """A processor of ours, or the wrapper's own body as one."""
        from mcore_unpatch.codemods.seams.lm_head.head_inputs import to_hook

        return to_hook(patch)

    def steps(self, match: Match, because: str) -> str:
        """What to delete, and what to write instead."""
        finding = match.situation.finding
        said = {
            "backup": "the backup of the original (line {}) unless something else calls it",
            "restore": "the restore (line {})",
            "flag": "its flag (line {})",
            "toggle": "its toggle (line {})",
        }
        lines = {role: [str(one.line) for one in finding.related if one.role == role] for role in said}
        with_it = [text.format(", ".join(lines[role])) for role, text in said.items() if lines[role]]
        also = f", and with it {', '.join(with_it)}" if with_it else ""
        return f"Not rewritten: {because}.\n1. Delete the assignment on line {finding.line}{also}.\n{_USE}"
