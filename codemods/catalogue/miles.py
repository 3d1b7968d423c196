"""miles: its log-prob and entropy functions from the shims, and `DeferredHead` on the policy."""

from __future__ import annotations

from typing import ClassVar

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.logits_caller import APPLIED, CallerPattern, Homes, LogitsCaller, attaching, offer

_TRAINING = "miles.backends.training_utils"
_LOSS = "miles/backends/training_utils/loss.py"


class Miles(LogitsCaller):
    """The functions of `mcore_unpatch.compat.miles`."""

    name, title = "miles", "miles"
    rules = (offer("MCU752", "miles", "miles"),)
    words = (b"log_probs_and_entropy", b"setup_model_and_optimizer", b"sum_of_sample_mean")
    shim = "mcore_unpatch.compat.miles"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": (f"{_TRAINING}.loss_hub.math_utils",),
        "get_log_probs_and_entropy": (f"{_TRAINING}.loss_hub.logit_processors", f"{_TRAINING}.loss"),
    }
    places = (
        attaching(
            "miles/backends/megatron_utils/model.py",
            "model, optimizer, opt_param_scheduler = setup_model_and_optimizer(args, role)",
            "model",
            'role != "critic"',
        ),
        CallerPattern(
            _LOSS,
            "loss, log = checkpoint(func, args, batch, logits, sum_of_sample_mean)",
            "checkpoints the loss in a way that gives LazyLogits no gradient",
            "pass `use_reentrant=False`",
            "argument",
            "use_reentrant=False",
        ),
    )
    examples = (
        Example(
            "MCU752",
            before="""
from megatron.core import mpu
from miles.backends.training_utils.loss_hub.math_utils import calculate_log_probs_and_entropy


def log_probs(logits, tokens):
    group = mpu.get_tensor_model_parallel_group()
    return calculate_log_probs_and_entropy(logits, tokens, group)[0]
""",
            after="""
from mcore_unpatch.compat.miles import calculate_log_probs_and_entropy
from megatron.core import mpu


def log_probs(logits, tokens):
    group = mpu.get_tensor_model_parallel_group()
    return calculate_log_probs_and_entropy(logits, tokens, group)[0]
""",
        ),
        Example(
            "MCU752",
            before="""
import megatron.core
from torch.utils.checkpoint import checkpoint


def loss_function(args, batch, logits, func, sum_of_sample_mean):
    loss, log = checkpoint(func, args, batch, logits, sum_of_sample_mean)
    return loss, log
""",
            after="""
import megatron.core
from torch.utils.checkpoint import checkpoint


def loss_function(args, batch, logits, func, sum_of_sample_mean):
    loss, log = checkpoint(func, args, batch, logits, sum_of_sample_mean, use_reentrant=False)
    return loss, log
""",
            unsafe=True,
            path=_LOSS,
        ),
    )
    covers = """
commit 31f1ca961: imports of `calculate_log_probs_and_entropy` and `get_log_probs_and_entropy` in files of the Megatron
backend and in what these import; with `--unsafe-fixes` also `attach(model, DeferredHead())`
"""
    changes = """
- The two functions are imported from `mcore_unpatch.compat.miles`, which gives real logits to miles' own.
  `training_utils/loss.py` passes one of them on and keeps miles' own, for the FSDP backend.
- `model.py` attaches `DeferredHead` behind `setup_model_and_optimizer(args, role)`, unless the role is the critic's.
- `checkpoint(...)` around the loss function gets `use_reentrant=False`.
"""
    applied = APPLIED
    by_hand = """
- **Upgrade first.** miles' image has a fork of Megatron: nothing is rewritten for it, since importing the shim there
  raises an ImportError. `unpatch migrate --target-mcore 0.19 --select MCU75 --diff` shows what comes after the upgrade.
- **The FSDP backend** shares `training_utils/loss_hub` with Megatron's. Once its files import the shim, FSDP needs an
  installed megatron-core 0.18 or later as well: that is why these imports take `--unsafe-fixes`.
- **`true_on_policy_mode`** needs whole 16-bit logits: do not attach there.
- A model that is built in another place than `miles/backends/megatron_utils/model.py` has it: attach there.
"""
