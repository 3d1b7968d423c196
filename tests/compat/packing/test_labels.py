"""Next-token labels: the successor in the same sequence, or none; never a token of a neighbour."""

from typing import Any

import pytest
import torch
from harness import run_on_ranks
from hypothesis import given, strategies as st

from mcore_unpatch.compat import next_token_labels, pack_padded, zigzag_split

CPU = torch.device("cpu")
LENGTHS = [7, 1, 12, 4]


def _successors(tokens: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The slow and plain way, on the padded batch."""
    labels = torch.full_like(tokens, -100)
    for row, length in enumerate(lengths):
        labels[row, : length - 1] = tokens[row, 1:length]
    return labels


def _batch(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(lengths)
    tokens = torch.arange(1, 1 + len(lengths) * width).view(len(lengths), width)
    return tokens, torch.arange(width) < torch.tensor(lengths)[:, None]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.sampled_from([1, 2, 4]))
def test_packed_labels_stay_in_their_sequence(lengths: list[int], tp: int) -> None:
    tokens, real = _batch(lengths)
    packer = pack_padded(real, tp_size=tp)
    labels = next_token_labels(
        packer.pack(tokens),
        packed_seq_params=packer.packed_seq_params(CPU),
        lengths=packer.layout.real_lengths(CPU),
    )
    assert torch.equal(packer.unpack(labels, fill=-100), _successors(tokens, lengths).where(real, -100))


def test_without_lengths_only_the_end_of_the_padded_segment_has_no_label() -> None:
    tokens, real = _batch([3, 2])
    packer = pack_padded(real, tp_size=4)
    labels = next_token_labels(packer.pack(tokens), packed_seq_params=packer.packed_seq_params(CPU))
    assert labels.tolist() == [[2, 3, 0, -100, 5, 0, 0, -100]]


def test_padded_batches_end_where_their_lengths_say() -> None:
    tokens, _ = _batch([4, 4])
    assert next_token_labels(tokens).tolist() == [[2, 3, 4, -100], [6, 7, 8, -100]]
    assert next_token_labels(tokens, lengths=torch.tensor([4, 2]), fill=-1).tolist() == [[2, 3, 4, -1], [6, -1, -1, -1]]


def test_bounds_without_padding_tell_where_a_sequence_ends() -> None:
    """As Transformer Engine wants them: `cu_seqlens_q` real, `cu_seqlens_q_padded` where the sequences lie."""
    tokens, real = _batch([3, 2])
    packer = pack_padded(real, tp_size=4)
    params = packer.packed_seq_params(CPU)
    params.cu_seqlens_q = torch.tensor([0, 3, 5], dtype=torch.int32)
    labels = next_token_labels(packer.pack(tokens), packed_seq_params=params)
    assert labels.tolist() == [[2, 3, -100, -100, 5, -100, -100, -100]]


def test_lengths_of_another_batch_are_refused() -> None:
    tokens, real = _batch([3, 2])
    packer = pack_padded(real)
    with pytest.raises(ValueError, match=r"lengths: expected one per row, \[2\], got \[3\]"):
        next_token_labels(tokens, lengths=torch.tensor([3, 2, 1]))
    with pytest.raises(ValueError, match=r"lengths: expected one per packed sequence, \[2\], got \[1\]"):
        next_token_labels(
            packer.pack(tokens), packed_seq_params=packer.packed_seq_params(CPU), lengths=torch.tensor([3])
        )


def test_packed_tokens_must_be_one_row() -> None:
    params = pack_padded(torch.ones(1, 4)).packed_seq_params(CPU)
    with pytest.raises(ValueError, match=r"\[1, tokens\], got \[2, 4\]"):
        next_token_labels(torch.zeros(2, 4, dtype=torch.long), packed_seq_params=params)


def _over_ranks(packed: bool) -> Any:
    group = torch.distributed.group.WORLD
    assert group is not None
    ranks, rank = group.size(), group.rank()
    tokens, real = _batch(LENGTHS)
    if packed:
        packer = pack_padded(real, cp_size=ranks, cp_rank=rank)
        labels = next_token_labels(
            packer.pack(tokens),
            packed_seq_params=packer.packed_seq_params(CPU),
            lengths=packer.layout.real_lengths(CPU),
            cp_group=group,
        )
        return packer.unpack(labels, fill=-100, cp_group=group)
    whole = torch.arange(48).view(2, 24)
    with pytest.raises(ValueError, match="two chunks of equal length"):
        next_token_labels(whole[:, :3], cp_group=group)
    labels = next_token_labels(zigzag_split(whole, ranks, rank), cp_group=group)
    assert torch.equal(labels, zigzag_split(_successors(whole, [24, 24]), ranks, rank))
    return None


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_labels_cross_the_borders_of_context_parallel_chunks(release: str, ranks: int, packed: bool) -> None:
    for labels in run_on_ranks(release, ranks, _over_ranks, packed):
        tokens, real = _batch(LENGTHS)
        assert not packed or torch.equal(labels, _successors(tokens, LENGTHS).where(real, -100))
