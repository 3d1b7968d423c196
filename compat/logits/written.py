"""Whether a weight is still the one a model ran with.

PyTorch counts writes, but not those through `.data`, by which Megatron's optimizers and loaders of weights write. So a
sample of the weight's bits is kept from the forward and compared when something is asked. On a GPU the answer stays
there, and makes results NaN; only if an optimizer has stepped in between is it waited for, and an error raised.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from mcore_unpatch.compat.fused_head.checks import waiting_is_free
from mcore_unpatch.compat.hook.errors import HookError

_NUMBERS = 1 << 16  # of the weight in the sample: a step that 16 bits can hold changes hundreds of them
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@cache
def _steps() -> list[int]:
    """How often any optimizer of this process has stepped, counted from the first call on."""
    seen = [0]

    def count(*_: Any) -> None:
        seen[0] += 1

    register_optimizer_step_post_hook(count)
    return seen


@dataclass(frozen=True, eq=False)
class WeightState:
    """A weight as it was when the model ran."""

    version: int
    steps: int
    sample: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "WeightState":
        """The state now."""
        return cls(_version(weight), _steps()[0], _sample(weight).clone())

    def holds(self, weight: Tensor) -> Tensor | None:
        """Raise if the weight was written to since; a flag on its device where finding out would mean waiting."""
        same = (_sample(weight) == self.sample).all()
        known = waiting_is_free(weight) or (weight.is_cuda and _steps()[0] != self.steps)
        if _version(weight) != self.version or (known and not same):
            raise HookError(
                "the LM head's weight was written to after the forward that returned these logits (an optimizer step, "
                "loaded weights); ask for log-probs before that, or run the model again."
            )
        return None if known else same


def _version(tensor: Tensor) -> int:
    """How often PyTorch saw a write (not counted in inference mode)."""
    return 0 if tensor.is_inference() else tensor._version


def _sample(weight: Tensor) -> Tensor:
    """Numbers from all over the weight as bits; the odd stride visits every column."""
    stride = weight.numel() // _NUMBERS | 1
    return weight.detach().reshape(-1)[::stride].view(_BITS[weight.itemsize])
