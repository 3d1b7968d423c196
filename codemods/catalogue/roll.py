"""ROLL: the log-prob, entropy and distillation functions of its Megatron strategy from the shims."""

from __future__ import annotations

from typing import ClassVar

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.logits_caller import APPLIED, CallerPattern, Homes, LogitsCaller, offer

_STRATEGY = "roll/distributed/strategy/megatron_strategy.py"


def _method(name: str, arguments: str) -> CallerPattern:
    return CallerPattern(
        _STRATEGY,
        f"def {name}",
        "takes logits",
        f"let the method return `roll.{name}({arguments})`, with `from mcore_unpatch.compat import roll`",
        done=f"roll.{name}(".encode(),
    )


class Roll(LogitsCaller):
    """The functions of `mcore_unpatch.compat.roll`."""

    name, title = "roll", "ROLL"
    rules = (offer("MCU753", "roll", "ROLL"),)
    words = (b"vocab_parallel_logprobs", b"vocab_parallel_entropy", b"op_compute_topk_logits", b"single_output_tensor")
    shim = "mcore_unpatch.compat.roll"
    homes: ClassVar[Homes] = {
        "vocab_parallel_cross_entropy": ("megatron.core.tensor_parallel.cross_entropy",),
        "vocab_parallel_entropy": ("roll.third_party.megatron.tensor_parallel",),
        "vocab_parallel_logprobs": (
            "mcore_adapter.parallel_functions",
            "mcore_adapter.parallel_functions.vocab_parallel",
        ),
    }
    places = (
        CallerPattern(
            _STRATEGY,
            "self.models_unwrapped = self.model.get_models()",
            "has the models that return logits",
            "behind it add `attach(self.models_unwrapped, DeferredHead())`, but not for a value model",
            done=b"DeferredHead",
        ),
        CallerPattern(
            _STRATEGY,
            "single_output_tensor = torch.zeros(new_shape, dtype=single_output_tensor.dtype, "
            "device=single_output_tensor.device)",
            "puts a tensor in the place of an empty sample's logits",
            "`single_output_tensor.new_zeros(new_shape)` is of the kind of the others",
            "in place",
            "single_output_tensor = single_output_tensor.new_zeros(new_shape)",
        ),
        _method("op_compute_topk_logits", "logits, topk"),
        _method("op_compute_gather_by_teacher_indices", "student_logits, teacher_indices"),
    )
    examples = (
        Example(
            "MCU753",
            before="""
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from mcore_adapter.parallel_functions import context_parallel_gather, vocab_parallel_logprobs
from roll.third_party.megatron.tensor_parallel import vocab_parallel_entropy


def outputs(logits, labels):
    log_probs = context_parallel_gather(vocab_parallel_logprobs(logits, labels))
    return log_probs, vocab_parallel_entropy(logits), vocab_parallel_cross_entropy(logits, labels)
""",
            after="""
from mcore_unpatch.compat.roll import (
    vocab_parallel_cross_entropy,
    vocab_parallel_entropy,
    vocab_parallel_logprobs,
)
from mcore_adapter.parallel_functions import context_parallel_gather


def outputs(logits, labels):
    log_probs = context_parallel_gather(vocab_parallel_logprobs(logits, labels))
    return log_probs, vocab_parallel_entropy(logits), vocab_parallel_cross_entropy(logits, labels)
""",
        ),
        Example(
            "MCU753",
            before="""
import torch


def stand_in(single_output_tensor, new_shape):
    single_output_tensor = torch.zeros(
        new_shape, dtype=single_output_tensor.dtype, device=single_output_tensor.device
    )  # an empty sample
    return torch.stack([single_output_tensor])
""",
            after="""
import torch


def stand_in(single_output_tensor, new_shape):
    single_output_tensor = single_output_tensor.new_zeros(new_shape)  # an empty sample
    return torch.stack([single_output_tensor])
""",
            unsafe=True,
            path=_STRATEGY,
        ),
    )
    covers = """
commit 8eb27cc2: imports of `vocab_parallel_logprobs`, `vocab_parallel_entropy` and, beside one of these, of Megatron's
`vocab_parallel_cross_entropy`
"""
    changes = """
- The functions are imported from `mcore_unpatch.compat.roll`, which gives real logits to ROLL's own, or Megatron's.
- The stand-in for an empty sample is made by `new_zeros`, which lazy logits have too.
- Two methods for distillation, and where to attach `DeferredHead`, are reported with their lines and the text to write.
"""
    applied = APPLIED
    by_hand = """
- **Attach** behind both `self.models_unwrapped = self.model.get_models()` of `megatron_strategy.py`, in the strategies
  for inference and for training, unless the model has a value head: the strategy itself does not know.
- **`patch_mtp_functions()`** replaces `GPTModel.forward` and `_postprocess`: `attach` refuses such a model until that
  is gone. `unpatch scan` lists the patches.
- **mcore_adapter's own trainers**, such as the one for DPO, build their models themselves: attach there as well.
"""
