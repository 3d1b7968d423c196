"""Packed rows: every token has one place, whatever the parallel sizes, and comes back from it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.attention import zigzag_places
from hypothesis import given, strategies as st

from mcore_unpatch.compat import pack_nested, pack_padded, plan_packing, zigzag_index, zigzag_merge, zigzag_split

CPU = torch.device("cpu")
lengths = st.lists(st.integers(0, 23), max_size=6)
sizes = st.sampled_from([1, 2, 3, 4])


@given(lengths, sizes, sizes, st.sampled_from([1, 16, 32]))
def test_rows_divide_as_asked_and_hold_every_token_once(lengths: list[int], tp: int, cp: int, multiple: int) -> None:
    layouts = [
        plan_packing(lengths, tp_size=tp, cp_size=cp, cp_rank=rank, token_multiple=multiple) for rank in range(cp)
    ]
    for layout in layouts:
        assert layout.local_tokens % tp == 0
        assert layout.local_tokens % multiple == 0
        assert all(padded >= length for padded, length in zip(layout.padded, lengths, strict=True))
        assert all(padded // cp % tp == 0 for padded in layout.padded)
        assert cp == 1 or all(padded % (2 * cp) == 0 for padded in layout.padded)
    rows = torch.cat([layout.real_index(CPU) for layout in layouts])
    assert sorted(rows[rows < sum(lengths)].tolist()) == list(range(sum(lengths)))
    assert torch.equal(rows[layouts[0].gathered_index(CPU)], torch.arange(sum(lengths)))


@given(lengths, st.sampled_from([1, 2, 4]))
def test_places_are_those_of_the_plain_zigzag(lengths: list[int], cp: int) -> None:
    for rank in range(cp):
        layout = plan_packing(lengths, cp_size=cp, cp_rank=rank)
        expected = [place for padded in layout.padded for place in zigzag_places(padded, cp, rank)]
        assert layout.position_ids(CPU)[0].tolist() == expected


def test_no_more_padding_than_needed() -> None:
    assert plan_packing([5, 8], tp_size=4).padded == (8, 8)
    assert plan_packing([5, 8], cp_size=2).padded == (8, 8)
    assert plan_packing([5, 9], tp_size=2, cp_size=2).padded == (8, 12)
    assert plan_packing([5, 8], token_multiple=16).padded == (5, 11)


@given(st.data())
def test_padded_batches_come_back(data: st.DataObject) -> None:
    batch, sequence = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    bits = data.draw(st.lists(st.booleans(), min_size=batch * sequence, max_size=batch * sequence))
    mask = torch.tensor(bits).view(batch, sequence)
    values = torch.randn(batch, sequence, 3)
    packer = pack_padded(mask, tp_size=2)
    row = packer.pack(values)
    assert row.shape == (1, packer.layout.local_tokens, 3)
    assert torch.equal(packer.unpack(row, fill=-1), values.where(mask[..., None], -1))


def test_nested_batches_come_back_with_their_gradient() -> None:
    parts = [torch.randn(n, requires_grad=True) for n in (3, 1, 6)]
    nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    packer = pack_nested(nested, tp_size=4)
    back = packer.unpack(packer.pack(nested) * 2)
    assert back.is_nested
    gradients = torch.autograd.grad(back.values().sum(), parts)
    assert all(torch.equal(gradient, torch.full_like(gradient, 2.0)) for gradient in gradients)
    assert all(torch.equal(a, 2 * b) for a, b in zip(back.unbind(), parts, strict=True))


@given(st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_zigzag_and_its_inverse(cp: int, chunk: int) -> None:
    whole = torch.randn(2, 2 * cp * chunk, 3)
    shares = [zigzag_split(whole, cp, rank) for rank in range(cp)]
    assert torch.equal(zigzag_merge(shares), whole)
    for rank, share in enumerate(shares):
        assert torch.equal(share, whole[:, zigzag_index(2 * cp * chunk, cp, rank)])


def test_lengths_that_are_not_the_batchs_are_refused() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert pack_padded(mask, lengths=[3, 1]).layout.lengths == (3, 1)
    with pytest.raises(ValueError, match=r"attention_mask: has sequences of \[3, 1\] tokens, but lengths is \[2, 2\]"):
        pack_padded(mask, lengths=[2, 2])
    nested, other = (
        torch.nested.as_nested_tensor([torch.randn(n) for n in lengths], layout=torch.jagged)
        for lengths in ((3, 1), (1, 3))
    )
    with pytest.raises(ValueError, match=r"batch: has sequences of \[3, 1\] tokens"):
        pack_nested(nested, lengths=[1, 3])
    with pytest.raises(ValueError, match=r"values: has sequences of \[1, 3\] tokens, but lengths is \[3, 1\]"):
        pack_nested(nested).pack(other)
    with pytest.raises(ValueError, match=r"expected a tensor nested like the packer's batch, got \[2, 3\]"):
        pack_nested(nested).pack(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"\[2, 3\] to match the attention mask, got nested"):
        pack_padded(mask).pack(nested)


def test_fp8_products_get_rows_they_can_multiply() -> None:
    """Of each context-parallel rank, sequence-parallel share included, without a token out of place."""
    for multiple in (16, 32, 128):
        for tp, cp in ((1, 1), (2, 1), (2, 2)):
            packer = pack_padded(torch.ones(3, 7), tp_size=tp, cp_size=cp, token_multiple=multiple)
            assert packer.layout.local_tokens % multiple == 0
            assert packer.layout.local_tokens % tp == 0
            assert packer.packed_seq_params(CPU).cu_seqlens_q[-1] == cp * packer.layout.local_tokens
    values = torch.randn(3, 7)
    packer = pack_padded(torch.ones(3, 7), token_multiple=128)
    assert packer.pack(values).shape == (1, 128)
    assert torch.equal(packer.unpack(packer.pack(values)), values)


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="multiple of 2 \\* cp = 4"):
        zigzag_split(torch.zeros(1, 6), 2, 0)
    with pytest.raises(ValueError, match="cp_rank=2"):
        plan_packing([3], cp_size=2, cp_rank=2)
    with pytest.raises(ValueError, match="negative"):
        plan_packing([3, -1])
    packer = pack_padded(torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"\[2, 4\] to match the attention mask, got \[2, 5\]"):
        packer.pack(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"\[1, 8, \.\.\.\], got \[1, 7\]"):
        packer.unpack(torch.zeros(1, 7))
    with pytest.raises(ValueError, match="expected 2 ranks"):
        pack_padded(torch.ones(2, 4), cp_size=2).unpack(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="layout=torch"):
        pack_nested(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"\[batch, sequence\]"):
        pack_padded(torch.ones(4))


def test_a_share_needs_the_group_that_the_layout_was_made_for() -> None:
    packer = pack_padded(torch.ones(1, 8, dtype=torch.bool), cp_size=2, cp_rank=0)
    row = packer.pack(torch.arange(8).view(1, 8))
    with pytest.raises(ValueError, match="cp_group: expected 2 ranks as in the layout, got None"):
        packer.unpack(row)
    group: Any = SimpleNamespace(size=lambda: 4)
    with pytest.raises(ValueError, match="cp_group: expected 2 ranks as in the layout, got 4"):
        packer.unpack(row, cp_group=group)


def test_a_layout_that_was_used_is_the_same_layout() -> None:
    """Whoever keeps results by layout finds them again: what a layout remembers for itself is no part of it."""
    used, fresh = plan_packing([3, 5], token_multiple=4), plan_packing([3, 5], token_multiple=4)
    used._kept["anything", "cpu"] = torch.ones(2)
    assert used == fresh
    assert hash(used) == hash(fresh)
    assert repr(used) == repr(fresh)
    assert used != plan_packing([5, 3], token_multiple=4)
