"""slime's log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`).

They have slime's names and arguments; real logits go to slime's own functions. Only the rows of responses are computed,
where slime's own functions compute those of prompts and padding too; miles shares that.
"""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.logits.lazy import LazyLogits, real_logits_to
from mcore_unpatch.compat.packing.gather import size_and_rank, sum_over_ranks, zigzag_places


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


@dataclass(frozen=True)
class Samples:
    """The samples of a micro-batch: all tokens of each, and how many of them are its prompt and response."""

    tokens: Sequence[Tensor]
    total_lengths: Sequence[int]
    response_lengths: Sequence[int]
    max_seq_lens: Sequence[int] | None = None  # if samples are padded, each to its own; else they are packed

    def __post_init__(self) -> None:
        for number, (total, response) in enumerate(zip(self.total_lengths, self.response_lengths, strict=True)):
            if response >= total:
                raise ValueError(
                    f"response_lengths: sample {number} has {response} response tokens of {total} in all; the first "
                    "token of a sample is predicted by nothing, so that it must belong to the prompt."
                )

    def rows(self, ranks: int, rank: int, contiguous: int | None = None) -> tuple[Tensor, Tensor]:
        """Of the response tokens of all samples, those that this rank predicts, and in which of its rows; on the host.

        Context-parallel ranks share every sample as two zigzag chunks, or have `contiguous` rows each of the whole.
        """
        unit = 1 if ranks == 1 or contiguous else 2 * ranks
        ends = [0, *accumulate(-(-length // unit) * unit for length in self.max_seq_lens or self.total_lengths)]
        responses = zip(ends, self.total_lengths, self.response_lengths, strict=False)
        before = [torch.arange(s + total - length - 1, s + total - 1) for s, total, length in responses]
        place = torch.cat([torch.empty(0, dtype=torch.long), *before])  # of the token before each
        if not contiguous:
            place = zigzag_places(torch.tensor(ends), ends[-1], ranks)[place]
        share = contiguous or max(1, ends[-1] // ranks)
        mine = (place // share == rank).nonzero().squeeze(1)
        return mine, place[mine] % share

    def split(self, values: Tensor, mine: Tensor) -> list[Tensor]:
        """The values of the tokens `mine`, sample by sample."""
        ends = torch.tensor([0, *accumulate(self.response_lengths)])
        return list(values.split(torch.searchsorted(mine, ends).diff().tolist()))


def response_results(
    logits: LazyLogits,
    samples: Samples,
    *,
    entropy: bool,
    entropy_grad: bool,
    allgather_cp: bool,
    top_p: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] | None = None,
) -> dict[str, list[Tensor]]:
    """`log_probs`, and `entropy` if asked for: of each sample, the values of its response tokens on this rank.

    With `allgather_cp` the ranks have equal parts of the whole row, and the results are those of zigzag chunks.
    `top_p` (ids, offsets) leaves the tokens that sampling left out, out of the log-probs; not out of the entropy.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    cp, device = logits.head.groups.cp, logits.device
    ranks, rank = size_and_rank(cp)
    mine, own_rows = samples.rows(ranks, rank, len(logits) if allgather_cp else None)
    index, rows = (numbers.to(device, non_blocking=True) for numbers in (mine, own_rows))
    lengths = zip(samples.tokens, samples.total_lengths, samples.response_lengths, strict=True)
    responses = [tokens[total - length : total].to(device) for tokens, total, length in lengths]
    targets = torch.cat([torch.empty(0, dtype=torch.long, device=device), *responses])
    if top_p is None:
        labels = torch.zeros(len(logits), dtype=torch.long, device=device).index_copy(0, rows, targets[index])
        mask = torch.zeros_like(labels, dtype=torch.bool).index_fill(0, rows, True)
        out = logits.compute(labels, entropy=entropy, mask=mask, mask_count=len(rows))  # known: nothing waits
        found = {"log_probs": needed(out.logprobs)[rows]} | ({"entropy": needed(out.entropy)[rows]} if entropy else {})
    else:
        chosen, keep = logits[rows], _keep_mask(logits, mine, samples.response_lengths, *top_p)
        found = {"log_probs": chosen.log_probs(targets[index], keep_mask=keep)}
        found |= {"entropy": chosen.entropy()} if entropy else {}
    results = {}
    for name, values in found.items():
        values, held = values.detach() if name == "entropy" and not entropy_grad else values, mine
        if allgather_cp and ranks > 1:  # to the zigzag chunks that the rest of the trainer expects
            held, _ = samples.rows(ranks, rank)
            everyone = sum_over_ranks(values.new_zeros(len(targets)).index_copy(0, index, values), cp, "summed")
            values = everyone[held.to(device, non_blocking=True)]
        results[name] = samples.split(values, held)
    return results


def _keep_mask(
    logits: LazyLogits,
    mine: Tensor,
    response_lengths: Sequence[int],
    token_ids: Sequence[Sequence[int]],
    token_offsets: Sequence[Sequence[int]],
) -> Tensor:
    """The tokens that top-p sampling kept in the rollout, as a mask over this rank's vocabulary.

    `[mine, vocab / tp]`: of response token r, `ids[offsets[r] : offsets[r + 1]]`; all where nothing was recorded.
    """
    vocabulary, group = logits.shape[-1], logits.head.groups.tp
    first = 0 if group is None else group.rank() * vocabulary
    at = torch.full((sum(response_lengths),), -1)  # the row of each response token, if it has one here
    at[mine] = torch.arange(len(mine))
    recorded, rows, columns = ([torch.empty(0, dtype=torch.long)] for _ in range(3))
    for place, some_ids, some_offsets in zip(at.split(list(response_lengths)), token_ids, token_offsets, strict=True):
        offsets = torch.as_tensor(some_offsets).long()[: len(place) + 1]
        if len(offsets) > 1:
            recorded.append(place[: len(offsets) - 1])
            rows.append(recorded[-1].repeat_interleave(offsets.diff()))
            columns.append(torch.as_tensor(some_ids).long()[offsets[0] : offsets[-1]] - first)
    row, column, cleared = torch.cat(rows), torch.cat(columns), torch.cat(recorded)
    here = (row >= 0) & (column >= 0) & (column < vocabulary)
    keep = torch.ones(len(mine), vocabulary, dtype=torch.bool, device=logits.device)
    numbers = (cleared[cleared >= 0], row[here], column[here])
    cleared, row, column = (number.to(keep.device, non_blocking=True) for number in numbers)
    return keep.index_fill_(0, cleared, False).index_put_((row, column), keep.new_ones(()))
