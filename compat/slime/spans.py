"""Which rows of a rank's packed logits predict which response tokens, in each layout that slime and miles pack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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
class Span:
    """Neighbouring rows of this rank, and the tokens of one sample that they predict."""

    rows: slice
    tokens: slice


def response_spans(
    total_lengths: Sequence[int], response_lengths: Sequence[int], layout: Layout
) -> Iterator[list[Span]]:
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
                at = row + begin - low
                spans.append(Span(slice(at, at + end - begin), slice(begin + 1, end + 1)))
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
