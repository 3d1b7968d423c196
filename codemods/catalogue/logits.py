"""slime, miles, ROLL and AReaL: their log-prob and entropy functions from the shims, for models with `DeferredHead`."""

from __future__ import annotations

from typing import ClassVar

from mcore_unpatch.codemods.logits_caller import Homes, LogitsCaller

_MILES = "miles.backends.training_utils"
_AREAL = ("areal.utils.functional", "areal.utils.functional.vocab_parallel")
_UNLESS_CRITIC = '`if role != "critic": attach(model, DeferredHead())`'
_OWN_FORK = "has a Megatron without the hook: nothing is rewritten for it, since importing the shim there raises."


class Slime(LogitsCaller):
    """The functions of `mcore_unpatch.compat.slime`."""

    name, title, code = "slime", "slime", "MCU751"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": ("slime.utils.ppo_utils",),
        "get_log_probs_and_entropy": ("slime.backends.megatron_utils.loss",),
        "get_label_token_log_probs_from_vocab_parallel_logits": ("slime.backends.megatron_utils.server.logprob_utils",),
    }
    attach_at = f"In `megatron_utils/model.py`, behind `setup_model_and_optimizer(args, role)`: {_UNLESS_CRITIC}."
    by_hand = f"""
- **Upgrade first.** slime's image {_OWN_FORK}
- **Rows of prompts.** The calls in `loss.py` run slime's own `get_log_probs_and_entropy`, which computes them. Call the
  one of `mcore_unpatch.compat.slime` there (`from mcore_unpatch.compat import slime`) to leave them out.
- **The server** (`server/logprob_utils.py`) defines its function for label tokens itself: call that of the shim.
"""


class Miles(LogitsCaller):
    """The functions of `mcore_unpatch.compat.miles`."""

    name, title, code = "miles", "miles", "MCU752"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": (f"{_MILES}.loss_hub.math_utils",),
        "get_log_probs_and_entropy": (f"{_MILES}.loss_hub.logit_processors", f"{_MILES}.loss"),
    }
    attach_at = (
        f"In `megatron_utils/model.py`, behind `setup_model_and_optimizer(args, role)`: {_UNLESS_CRITIC}. Then "
        "`checkpoint(func, ...)` in `training_utils/loss.py` needs `use_reentrant=False`."
    )
    by_hand = f"""
- **Upgrade first.** miles' image {_OWN_FORK}
- **The FSDP backend** shares `training_utils/loss_hub` with Megatron's. Once its files import the shim, FSDP needs an
  installed megatron-core 0.18 or later as well: that is why these imports take `--unsafe-fixes`.
- **`true_on_policy_mode`** needs whole 16-bit logits: do not attach there.
"""


class Roll(LogitsCaller):
    """The functions of `mcore_unpatch.compat.roll`."""

    name, title, code = "roll", "ROLL", "MCU753"
    homes: ClassVar[Homes] = {
        "vocab_parallel_cross_entropy": ("megatron.core.tensor_parallel.cross_entropy",),
        "vocab_parallel_entropy": ("roll.third_party.megatron.tensor_parallel",),
        "vocab_parallel_logprobs": (
            "mcore_adapter.parallel_functions",
            "mcore_adapter.parallel_functions.vocab_parallel",
        ),
    }
    attach_at = (
        "In `megatron_strategy.py`, behind both `self.models_unwrapped = self.model.get_models()`, write "
        "`attach(self.models_unwrapped, DeferredHead())`, but not for a model with a value head. Then the stand-in of "
        "an empty sample is `single_output_tensor.new_zeros(new_shape)`, and `op_compute_topk_logits` and "
        "`op_compute_gather_by_teacher_indices` return what `mcore_unpatch.compat.roll` has by these names."
    )
    by_hand = """
- **`patch_mtp_functions()`** replaces `GPTModel.forward` and `_postprocess`: `attach` refuses such a model until that
  is gone. `unpatch scan` lists the patches.
- **mcore_adapter's own trainers**, such as the one for DPO, build their models themselves: attach there as well.
"""


class Areal(LogitsCaller):
    """The functions of `mcore_unpatch.compat.areal`."""

    name, title, code = "areal", "AReaL", "MCU754"
    homes: ClassVar[Homes] = {
        "gather_logprobs": _AREAL,
        "gather_logprobs_entropy": _AREAL,
        "unpad_logits": ("areal.utils.data",),
    }
    attach_at = (
        "In `megatron_engine.py`, behind `self.model = _MegatronModelList(models)`: `if not self.config.is_critic: "
        "attach(self.model, DeferredHead())`. Then `vocab_min_logits, vocab_max_logits = "
        "get_vocab_min_max_logits(output)`, from `mcore_unpatch.compat.areal`, takes the place of the two lines that "
        "read them from the logits."
    )
    by_hand = """
- **Upgrade first**: AReaL pins megatron-core 0.17.0. The shim cannot be imported there, so not even an import is
  rewritten before `pyproject.toml` asks for 0.18 or later.
- **`areal/models/tree_attn/functional.py`** is shared with the FSDP and Archon engines. Once it imports the shim, they
  need an installed megatron-core 0.18 or later as well: that is why this import takes `--unsafe-fixes`.
- **The vocabulary statistics** are those of the whole vocabulary then, and take a pass of their own over it with the
  torch backend: drop them if nobody reads them.
"""
