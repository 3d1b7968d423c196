"""veRL's `verl.utils.kernel.linear_cross_entropy` on the fused operator; without what that needs its import raises."""

from ..requirements import falls_back, missing_from_extra, require_switched_on, say_once

require_switched_on(__name__)
try:
    import torch
except ModuleNotFoundError as error:
    raise missing_from_extra(__name__, error, "ops") from error

from ..fused_head.torch_backend import missing_for_triton

if missing := missing_for_triton():
    raise falls_back(f"{__name__} would be slower than what it replaces: {missing}.")

from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup

from ..fused_head.linear_logprob import vocab_pass
from ..fused_head.problem import needed
from ..fused_head.settings import check_choice


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    temperature: float | Tensor = 1.0,
    reduction: str = "none",
    dist_process_group: ProcessGroup | None = None,
    *,
    keep_bytes: int = 0,
) -> tuple[Tensor, Tensor]:
    """Log-probs of `labels` (`-logsumexp` of one that is no token) and the entropy, float32 and flat as the labels.

    `reduction` is for the log-probs alone. The gradient of `hidden` is this rank's part, to be summed over the group.
    """
    say_once(__name__, "the fused operator")
    how = reduction.lower() if isinstance(reduction, str) else reduction
    check_choice("reduction", how, "none", "sum", "mean")
    if isinstance(temperature, Tensor) and temperature.dim():
        temperature = temperature.reshape(-1)
    flat = labels.reshape(-1)
    asked: dict[str, Any] = {"temperature": temperature, "tp_group": dist_process_group, "keep_bytes": keep_bytes}
    asked |= {"entropy": True, "ignore_index": None, "reduce_hidden_grad": False}
    out = vocab_pass(hidden.reshape(-1, hidden.shape[-1]), weight, flat, **asked)
    total = len(weight) * (1 if dist_process_group is None else dist_process_group.size())
    logprobs = torch.where((flat >= 0) & (flat < total), needed(out.logprobs), -out.logsumexp)
    return logprobs if how == "none" else getattr(logprobs, how)(), needed(out.entropy)
