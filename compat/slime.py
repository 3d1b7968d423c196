"""slime's log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`).

They have slime's names and arguments; real logits go to slime's own functions.
"""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from argparse import Namespace
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.logits.lazy import LazyLogits, real_logits_to
from mcore_unpatch.compat.responses import Samples, response_results


@real_logits_to("slime.utils.ppo_utils")
def calculate_log_probs_and_entropy(
    logits: LazyLogits,
    tokens: Tensor,
    tp_group: ProcessGroup | None,
    with_entropy: bool = False,
    chunk_size: int = -1,
    log_prob_keep_mask: Tensor | None = None,
    with_entropy_grad: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs `[tokens, 1]` and entropy `[tokens]` of logits `[tokens, vocab / tp]`.

    `log_prob_keep_mask` `[tokens, vocab / tp]` leaves tokens of the vocabulary out of the log-probs, not out of the
    entropy: with both there are two passes, else one. The group is the model's own, and the work is tiled over the
    vocabulary: `tp_group` and `chunk_size` change nothing.
    """
    if len(logits) == 0:
        tokens = tokens[:0]  # callers slice `tokens[-0:]` for an empty response
    if log_prob_keep_mask is None:
        out = logits.compute(tokens, entropy=with_entropy)
        log_probs, entropy = out.logprobs, out.entropy
    else:
        log_probs = logits.log_probs(tokens, keep_mask=log_prob_keep_mask)
        entropy = logits.entropy() if with_entropy else None
    if entropy is not None and not with_entropy_grad:
        entropy = entropy.detach()
    return needed(log_probs)[:, None], entropy


@real_logits_to("slime.backends.megatron_utils.loss")
def get_log_probs_and_entropy(
    logits: LazyLogits,
    *,
    args: Namespace,
    unconcat_tokens: list[Tensor],
    total_lengths: list[int],
    response_lengths: list[int],
    with_entropy: bool = False,
    non_loss_data: bool = True,
    top_p_token_ids: list[Any] | None = None,
    top_p_token_offsets: list[Any] | None = None,
) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """An empty tensor, and `log_probs` and `entropy`: of each sample, the values of its response on this rank.

    From logits `[1, tokens, vocab / tp]` of samples packed one after another. Rows of prompts and padding are not
    computed. The entropy has a gradient if `args.entropy_coef` is not 0.
    """
    assert non_loss_data
    samples = Samples(unconcat_tokens, total_lengths, response_lengths)
    top_p = None
    if top_p_token_ids is not None and top_p_token_offsets is not None:
        top_p = (top_p_token_ids, top_p_token_offsets)
    results = response_results(
        logits / float(getattr(args, "rollout_temperature", 1.0)),
        samples,
        entropy=with_entropy,
        entropy_grad=getattr(args, "entropy_coef", 0.0) != 0,
        allgather_cp=args.allgather_cp,
        top_p=top_p,
    )
    return torch.empty(0, device=logits.device), results


@real_logits_to("slime.backends.megatron_utils.server.logprob_utils")
def get_label_token_log_probs_from_vocab_parallel_logits(
    vocab_parallel_logits: LazyLogits,
    label_token_ids: Tensor,
    *,
    tp_group: ProcessGroup | None = None,
    reduction_chunk_size: int = 4096,
) -> Tensor:
    """Log-probs `[tokens, k]` of `label_token_ids` `[tokens, k]`, without gradient: what a teacher is asked for."""
    with torch.no_grad():
        return vocab_parallel_logits.log_probs_at(label_token_ids)
