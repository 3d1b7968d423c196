"""veRL's `verl.utils.kernel.linear_cross_entropy` on the fused operator: the same call and results, in less time.

It needs no Megatron. Without torch and triton that the fused kernels can use, its import raises.
"""

from ..requirements import falls_back, missing_from_extra, require_switched_on, say_once

require_switched_on(__name__)
try:
    import torch
except ModuleNotFoundError as error:
    raise missing_from_extra(__name__, error, "ops") from error

from ..fused_head.torch_backend import missing_for_triton

if missing := missing_for_triton():
    raise falls_back(f"{__name__} would be slower than what it replaces: {missing}.")

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
    """Log-probs of `labels` (a loss with its sign turned), and the entropy, under `hidden @ weight.T / temperature`.

    Both are float32 and flat, in the order of `labels`. A label that is no token has the log-prob `-logsumexp`.
    `reduction` ("none", "sum" or "mean") is for the log-probs alone. The gradient of `hidden` is this rank's part: sum
    it over the ranks of `dist_process_group`, as the gather of sequence parallelism does.
    """
    say_once(__name__, "the fused operator")
    how = reduction.lower() if isinstance(reduction, str) else reduction
    check_choice("reduction", how, "none", "sum", "mean")
    if isinstance(temperature, Tensor) and temperature.dim():
        temperature = temperature.reshape(-1)
    flat = labels.reshape(-1)
    out = vocab_pass(
        hidden.reshape(-1, hidden.shape[-1]),
        weight,
        flat,
        temperature=temperature,
        entropy=True,
        ignore_index=None,
        tp_group=dist_process_group,
        reduce_hidden_grad=False,
        keep_bytes=keep_bytes,
    )
    total = len(weight) * (1 if dist_process_group is None else dist_process_group.size())
    logprobs = torch.where((flat >= 0) & (flat < total), needed(out.logprobs), -out.logsumexp)
    return logprobs if how == "none" else getattr(logprobs, how)(), needed(out.entropy)
