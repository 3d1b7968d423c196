"""slime: its log-prob and entropy functions from the shims, and `DeferredHead` on the policy."""

from __future__ import annotations

from typing import ClassVar

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.logits_caller import APPLIED, CallerPattern, Homes, LogitsCaller, attaching, offer

_LABELS = "get_label_token_log_probs_from_vocab_parallel_logits"
_MODEL = "slime/backends/megatron_utils/model.py"


class Slime(LogitsCaller):
    """The functions of `mcore_unpatch.compat.slime`."""

    name, title = "slime", "slime"
    rules = (offer("MCU751", "slime", "slime"),)
    words = (b"log_probs_and_entropy", b"setup_model_and_optimizer", _LABELS.encode())
    shim = "mcore_unpatch.compat.slime"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": ("slime.utils.ppo_utils",),
        "get_log_probs_and_entropy": ("slime.backends.megatron_utils.loss",),
        _LABELS: ("slime.backends.megatron_utils.server.logprob_utils",),
    }
    places = (
        attaching(
            _MODEL,
            "model, optimizer, opt_param_scheduler = setup_model_and_optimizer(args, role)",
            "model",
            'role != "critic"',
        ),
        CallerPattern(
            "slime/backends/megatron_utils/server/logprob_utils.py",
            f"def {_LABELS}",
            "takes the logits of a teacher",
            f"in its calls in this file use `slime.{_LABELS}`, with `from mcore_unpatch.compat import slime`; this "
            "definition stays for real logits",
            done=b"from mcore_unpatch.compat import slime",
        ),
    )
    examples = (
        Example(
            "MCU751",
            before="""
from megatron.core import mpu
from slime.utils.ppo_utils import (
    calculate_log_probs_and_entropy,
    compute_approx_kl,
)


def log_probs(logits, tokens, reference):
    group = mpu.get_tensor_model_parallel_group()
    values, _ = calculate_log_probs_and_entropy(logits, tokens, group)
    return values, compute_approx_kl(values, reference, "k1")
""",
            after="""
from mcore_unpatch.compat.slime import calculate_log_probs_and_entropy
from megatron.core import mpu
from slime.utils.ppo_utils import compute_approx_kl


def log_probs(logits, tokens, reference):
    group = mpu.get_tensor_model_parallel_group()
    values, _ = calculate_log_probs_and_entropy(logits, tokens, group)
    return values, compute_approx_kl(values, reference, "k1")
""",
        ),
        Example(
            "MCU751",
            before="""
from megatron.core import mpu


def initialize_model_and_optimizer(args, role):
    model, optimizer, opt_param_scheduler = setup_model_and_optimizer(args, role)
    model[0].role = role
    return model, optimizer, opt_param_scheduler
""",
            after="""
from mcore_unpatch.compat import DeferredHead, attach
from megatron.core import mpu


def initialize_model_and_optimizer(args, role):
    model, optimizer, opt_param_scheduler = setup_model_and_optimizer(args, role)
    if role != "critic":
        attach(model, DeferredHead())
    model[0].role = role
    return model, optimizer, opt_param_scheduler
""",
            unsafe=True,
            path=_MODEL,
        ),
    )
    covers = """
commit 624b824a8: imports of `calculate_log_probs_and_entropy`, `get_log_probs_and_entropy` and the server's function
for label tokens; with `--unsafe-fixes` also `attach(model, DeferredHead())`
"""
    changes = """
- The functions are imported from `mcore_unpatch.compat.slime`, which gives real logits to slime's own.
- `model.py` attaches `DeferredHead` behind `setup_model_and_optimizer(args, role)`, unless the role is the critic's.
- `get_log_probs_and_entropy` stays where it is defined, in `loss.py`, and works on lazy logits through what it imports.
"""
    applied = APPLIED
    by_hand = """
- **Upgrade first.** slime's images have a Megatron of 0.16: nothing is rewritten for it, since importing the shim there
  raises an ImportError. `unpatch migrate --target-mcore 0.19 --select MCU75 --diff` shows what comes after the upgrade.
- **Rows of prompts.** The calls in `loss.py` run slime's own `get_log_probs_and_entropy`, which computes them. Call the
  one of `mcore_unpatch.compat.slime` there (`from mcore_unpatch.compat import slime`) to leave them out.
- **The server** (`server/logprob_utils.py`) defines its function for label tokens itself: its line is reported, with
  what to call.
- A model that is built in another place than `slime/backends/megatron_utils/model.py` has it: attach there.
"""
