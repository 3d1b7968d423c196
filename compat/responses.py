"""Log-probs and entropy of every sample's response from one pass over the vocabulary: what slime and miles share.

Only the rows of responses are computed; slime's own functions compute those of prompts and padding too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.logits.lazy import LazyLogits
from mcore_unpatch.compat.packing.gather import sum_over_ranks


@dataclass(frozen=True)
class Layout:
    """How samples lie in the rows of this rank: packed one after another, or padded to `max_seq_lens` each.

    Context-parallel ranks share every sample as two zigzag chunks, or, with `contiguous`, the whole row in equal parts.
    """

    rows: int  # on this rank
    cp_size: int = 1
    cp_rank: int = 0
    contiguous: bool = False
    max_seq_lens: Sequence[int] | None = None


@dataclass(frozen=True)
class SampleRows:
    """Neighbouring rows of this rank, and the tokens of one sample that they predict: in it, and in its response."""

    rows: slice
    tokens: slice
    response: slice


def response_spans(
    total_lengths: Sequence[int], response_lengths: Sequence[int], layout: Layout
) -> Iterator[list[SampleRows]]:
    """Of each sample, the spans of its response on this rank: none, one or two."""
    start = 0
    for number, (total, response) in enumerate(zip(total_lengths, response_lengths, strict=True)):
        if response >= total:
            raise ValueError(
                f"response_lengths: sample {number} has {response} response tokens of {total} in all; the first token "
                "of a sample is predicted by nothing, so that it must belong to the prompt."
            )
        padded = total if layout.max_seq_lens is None else layout.max_seq_lens[number]
        first, last = total - response - 1, total - 1  # the positions whose next token is in the response
        spans = []
        for row, low, high in _chunks(start, padded, layout):
            begin, end = max(low, first), min(high, last)
            if begin < end:
                at, inside = row + begin - low, slice(begin - first, end - first)
                spans.append(SampleRows(slice(at, at + end - begin), slice(begin + 1, end + 1), inside))
        yield spans
        start += _rows_taken(padded, layout)


def _chunks(start: int, length: int, layout: Layout) -> Iterator[tuple[int, int, int]]:
    """First row, first position and end position of each chunk of a sample that this rank holds."""
    size, rank = layout.cp_size, layout.cp_rank
    if size == 1:
        yield start, 0, length
    elif layout.contiguous:
        low = max(0, rank * layout.rows - start)
        yield start + low - rank * layout.rows, low, (rank + 1) * layout.rows - start
    else:
        chunk = -(-length // (2 * size))
        for row, place in ((start, rank), (start + chunk, 2 * size - 1 - rank)):
            yield row, place * chunk, (place + 1) * chunk


def _rows_taken(length: int, layout: Layout) -> int:
    """Rows of this rank that a sample takes up; with a contiguous split, of the whole row."""
    if layout.cp_size == 1 or layout.contiguous:
        return length
    return 2 * -(-length // (2 * layout.cp_size))


@dataclass(frozen=True)
class Samples:
    """The samples of a micro-batch: all tokens of each, and how many of them are its prompt and response."""

    tokens: Sequence[Tensor]
    total_lengths: Sequence[int]
    response_lengths: Sequence[int]

    def spans(self, layout: Layout) -> list[list[SampleRows]]:
        """Of each sample, the spans of its response on this rank."""
        return list(response_spans(self.total_lengths, self.response_lengths, layout))


def response_results(
    logits: LazyLogits,
    samples: Samples,
    *,
    entropy: bool = False,
    entropy_grad: bool = True,
    allgather_cp: bool = False,
    max_seq_lens: Sequence[int] | None = None,
    top_p: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] | None = None,
) -> dict[str, list[Tensor]]:
    """`log_probs`, and `entropy` if asked for: of each sample, the values of its response tokens on this rank.

    `top_p` (ids, offsets) leaves the tokens that sampling left out, out of the log-probs; not out of the entropy.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    cp = logits.head.groups.cp
    size, rank = (1, 0) if cp is None else (cp.size(), cp.rank())
    layout = Layout(len(logits), size, rank, allgather_cp, max_seq_lens)
    spans = samples.spans(layout)
    labels = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for tokens, own in zip(samples.tokens, spans, strict=True):
        for span in own:
            labels[span.rows] = tokens[span.tokens].to(labels)
            mask[span.rows] = True
    places = [span.rows for own in spans for span in own]
    count = sum(rows.stop - rows.start for rows in places)  # known here: nothing waits for the device
    found: dict[str, Tensor | None] = {}
    if top_p is None:
        out = logits.compute(labels, entropy=entropy, mask=mask, mask_count=count)
        found = {"log_probs": out.logprobs, "entropy": out.entropy}
    else:
        rows = torch.cat([labels[:0], *(torch.arange(p.start, p.stop, device=logits.device) for p in places)])
        keep = _keep_mask(logits, len(rows), spans, *top_p)
        some = logits[rows].log_probs(labels[rows], keep_mask=keep)
        found["log_probs"] = some.new_zeros(len(logits)).index_copy(0, rows, some)
        if entropy:
            found["entropy"] = logits.compute(entropy=True, mask=mask, mask_count=count).entropy
    results = {}
    for name, values in found.items():
        if values is not None:
            values = values.detach() if name == "entropy" and not entropy_grad else values
            results[name] = [_joined(values, own) for own in spans]
    if allgather_cp and size > 1:
        zigzag = samples.spans(replace(layout, contiguous=False))
        results = {name: _in_zigzag(parts, samples, spans, zigzag, cp) for name, parts in results.items()}
    return results


def _joined(values: Tensor, spans: list[SampleRows]) -> Tensor:
    return torch.cat([values[span.rows] for span in spans]) if spans else values[:0]


def _in_zigzag(
    parts: list[Tensor],
    samples: Samples,
    contiguous: list[list[SampleRows]],
    zigzag: list[list[SampleRows]],
    cp_group: ProcessGroup | None,
) -> list[Tensor]:
    """From the contiguous parts of the ranks to the zigzag chunks that the rest of the trainer expects."""
    whole = []
    for part, own, response in zip(parts, contiguous, samples.response_lengths, strict=True):
        before = own[0].response.start if own else 0
        whole.append(torch.nn.functional.pad(part, (before, response - before - len(part))))
    everyone = sum_over_ranks(torch.cat(whole), cp_group, "summed").split(list(samples.response_lengths))
    return [
        torch.cat([values[span.response] for span in own]) if own else values[:0]
        for values, own in zip(everyone, zigzag, strict=True)
    ]


def _keep_mask(
    logits: LazyLogits,
    rows: int,
    spans: Sequence[Sequence[SampleRows]],
    token_ids: Sequence[Sequence[int]],
    token_offsets: Sequence[Sequence[int]],
) -> Tensor:
    """The tokens that top-p sampling kept in the rollout, as a mask over this rank's vocabulary.

    `[rows, vocab / tp]`: of response token r, `ids[offsets[r] : offsets[r + 1]]`; all where nothing was recorded.
    """
    vocabulary, group = logits.shape[-1], logits.head.groups.tp
    first = 0 if group is None else group.rank() * vocabulary
    keep = torch.ones(rows, vocabulary, dtype=torch.bool, device=logits.device)
    at = 0  # rows are in the order of the spans
    for own, some_ids, some_offsets in zip(spans, token_ids, token_offsets, strict=True):
        ids, offsets = torch.as_tensor(some_ids).long(), torch.as_tensor(some_offsets).long()
        recorded = max(len(offsets) - 1, 0)
        for span in own:
            begin, end = span.response.start, span.response.stop
            stop = min(end, recorded)
            if begin < stop:
                counts = offsets[begin + 1 : stop + 1] - offsets[begin:stop]
                row = torch.arange(at, at + stop - begin).repeat_interleave(counts)
                column = ids[offsets[begin] : offsets[stop]] - first
                here = (column >= 0) & (column < vocabulary)
                keep[at : at + stop - begin] = False
                keep[row[here].to(keep.device), column[here].to(keep.device)] = True
            at += end - begin
    return keep
