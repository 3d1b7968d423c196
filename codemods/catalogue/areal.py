"""AReaL: the log-prob and entropy functions of its Megatron engine from the shims, and `DeferredHead` on the policy."""

from __future__ import annotations

from typing import ClassVar

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.logits_caller import APPLIED, CallerPattern, Homes, LogitsCaller, attaching, offer

_ENGINE = "areal/engine/megatron_engine.py"
_FUNCTIONAL = ("areal.utils.functional", "areal.utils.functional.vocab_parallel")


class Areal(LogitsCaller):
    """The functions of `mcore_unpatch.compat.areal`."""

    name, title = "areal", "AReaL"
    rules = (offer("MCU754", "areal", "AReaL"),)
    words = (b"gather_logprobs", b"unpad_logits", b"_MegatronModelList", b"vocab_min_logits")
    shim = "mcore_unpatch.compat.areal"
    homes: ClassVar[Homes] = {
        "gather_logprobs": _FUNCTIONAL,
        "gather_logprobs_entropy": _FUNCTIONAL,
        "unpad_logits": ("areal.utils.data",),
    }
    places = (
        attaching(_ENGINE, "self.model = _MegatronModelList(models)", "self.model", "not self.config.is_critic"),
        CallerPattern(
            _ENGINE,
            "vocab_min_logits = output.detach().min(-1).values.float()\n"
            "vocab_max_logits = output.detach().max(-1).values.float()",
            "reads the smallest and the largest logit, of this rank's shard",
            "`get_vocab_min_max_logits(output)` gives both, of the whole vocabulary",
            "in place",
            "vocab_min_logits, vocab_max_logits = get_vocab_min_max_logits(output)",
            ("get_vocab_min_max_logits",),
        ),
    )
    examples = (
        Example(
            "MCU754",
            before="""
from areal.utils.data import pad_mb_list, unpad_logits
from areal.utils.functional import gather_logprobs, gather_logprobs_entropy
from megatron.core import mpu


def log_probs(logits, labels, padding, entropy):
    group = mpu.get_tensor_model_parallel_group()
    function = gather_logprobs_entropy if entropy else gather_logprobs
    return function(unpad_logits(logits, padding), labels, tp_group=group), pad_mb_list
""",
            after="""
from areal.utils.data import pad_mb_list
from mcore_unpatch.compat.areal import (
    gather_logprobs,
    gather_logprobs_entropy,
    unpad_logits,
)
from megatron.core import mpu


def log_probs(logits, labels, padding, entropy):
    group = mpu.get_tensor_model_parallel_group()
    function = gather_logprobs_entropy if entropy else gather_logprobs
    return function(unpad_logits(logits, padding), labels, tp_group=group), pad_mb_list
""",
        ),
        Example(
            "MCU754",
            before="""
from areal.utils.functional import gather_logprobs


class MegatronEngine:
    def initialize(self, models):
        self.model = _MegatronModelList(models)

    def loss(self, output, labels):
        logprobs = gather_logprobs(output, labels)
        vocab_min_logits = output.detach().min(-1).values.float()
        vocab_max_logits = output.detach().max(-1).values.float()
        return logprobs, vocab_min_logits, vocab_max_logits
""",
            after="""
from mcore_unpatch.compat import DeferredHead, attach
from mcore_unpatch.compat.areal import gather_logprobs, get_vocab_min_max_logits


class MegatronEngine:
    def initialize(self, models):
        self.model = _MegatronModelList(models)
        if not self.config.is_critic:
            attach(self.model, DeferredHead())

    def loss(self, output, labels):
        logprobs = gather_logprobs(output, labels)
        vocab_min_logits, vocab_max_logits = get_vocab_min_max_logits(output)
        return logprobs, vocab_min_logits, vocab_max_logits
""",
            unsafe=True,
            path=_ENGINE,
        ),
    )
    covers = """
commit 4aef98d8d: imports of `gather_logprobs`, `gather_logprobs_entropy` and `unpad_logits` in the Megatron engine and
in what it imports; with `--unsafe-fixes` also `attach(self.model, DeferredHead())`
"""
    changes = """
- The functions are imported from `mcore_unpatch.compat.areal`, which gives real logits to AReaL's own. The FSDP and
  Archon engines are left.
- `megatron_engine.py` attaches `DeferredHead` behind `self.model = _MegatronModelList(models)`, unless that is a
  critic.
- The smallest and largest logit come from `get_vocab_min_max_logits`: of the whole vocabulary, where every
  tensor-parallel rank had those of its shard.
"""
    applied = APPLIED
    by_hand = """
- **Upgrade first**: AReaL pins megatron-core 0.17.0. The shim cannot be imported there, so not even an import is
  rewritten before `pyproject.toml` asks for 0.18 or later.
- **`areal/models/tree_attn/functional.py`** is shared with the FSDP and Archon engines. Once it imports the shim, they
  need an installed megatron-core 0.18 or later as well: that is why this import takes `--unsafe-fixes`.
- **The vocabulary statistics** take a pass of their own over the vocabulary with the torch backend: drop them if
  nobody reads them.
"""
