"""Gathers over context-parallel ranks: the same forward, and the backward that the loss asks for."""

from typing import Any

import pytest
import torch
from harness import on_ranks, run_on_ranks
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat import (
    gather_sequence,
    gather_shares,
    mean_per_sequence,
    pack_padded,
    plan_packing,
    sum_over_ranks,
    sum_per_sequence,
    zigzag_merge,
    zigzag_split,
)
from mcore_unpatch.compat.packing.gather import (
    Gradient,
    broadcast_from_last_stage,
    gather_packed_row,
    size_and_rank,
    split_packed_row,
    sum_gradient,
    zigzag_places,
)

CPU = torch.device("cpu")


def _gradient_of_a_loss_on(every_rank_the_same: bool, gradient: Gradient) -> tuple[Tensor, Tensor]:
    """Gathered sequence, a loss on it: this rank's gradient, and the true one."""
    group = torch.distributed.group.WORLD
    assert group is not None
    whole = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    share = zigzag_split(whole.detach(), group.size(), group.rank()).requires_grad_()
    gathered = gather_sequence(share, group, gradient)
    assert torch.equal(gathered, whole)
    weight = torch.arange(16.0).view(2, 8)
    mine = weight if every_rank_the_same else weight * (group.rank() + 1)
    torch.autograd.backward((mine * gathered.square()).sum())
    everyone = 1 if every_rank_the_same else sum(range(1, group.size() + 1))
    torch.autograd.backward((everyone * weight * whole.square()).sum())
    assert share.grad is not None
    assert whole.grad is not None
    return share.grad, zigzag_split(whole.grad, group.size(), group.rank())


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_neither_doubled_nor_lost(release: str, ranks: int) -> None:
    for own, true in run_on_ranks(release, ranks, _gradient_of_a_loss_on, True, "own"):
        assert torch.equal(own, true)
    for summed, true in run_on_ranks(release, ranks, _gradient_of_a_loss_on, False, "summed"):
        assert_close(summed, true, sums=ranks)
    for counted_again, true in run_on_ranks(release, ranks, _gradient_of_a_loss_on, True, "summed"):
        assert_close(counted_again, ranks * true, sums=ranks)


def _per_sequence() -> None:
    group = torch.distributed.group.WORLD
    assert group is not None
    lengths = torch.tensor([5, 0, 9, 2])
    real = torch.arange(9) < lengths[:, None]
    values = torch.randn(4, 9, generator=torch.Generator().manual_seed(1))
    keep = (torch.arange(9) % 3 > 0).expand(4, 9)
    packer = pack_padded(real, cp_size=group.size(), cp_rank=group.rank())
    row = packer.pack(values).requires_grad_()
    mask = packer.pack(keep)
    sums = sum_per_sequence(row, packer.layout, cp_group=group)
    assert_close(sums, (values * real).sum(1))
    means = mean_per_sequence(row, packer.layout, mask=mask, cp_group=group)
    assert_close(means, (values * real * keep).sum(1) / (real & keep).sum(1).clamp(min=1))
    torch.autograd.backward((sums * torch.arange(4)).sum())
    weights = torch.arange(4.0)[:, None].expand(4, 9) * real
    assert_close(row.grad, packer.pack(weights))


@pytest.mark.parametrize("ranks", [1, 2])
def test_losses_per_packed_sequence_run_over_all_ranks(release: str, ranks: int) -> None:
    run_on_ranks(release, ranks, _per_sequence)


@on_ranks(2)
def test_different_losses_of_the_means_add_their_gradients() -> None:
    """Each rank weighs the means in its own way; the gradient of a token is that of all ranks' losses together."""
    group = torch.distributed.group.WORLD
    assert group is not None
    real = torch.arange(9) < torch.tensor([5, 0, 9, 2])[:, None]
    packer = pack_padded(real, cp_size=group.size(), cp_rank=group.rank())
    row = packer.pack(torch.ones(4, 9)).requires_grad_()
    means = mean_per_sequence(row, packer.layout, cp_group=group, gradient="summed")
    torch.autograd.backward((means * torch.arange(4.0) * 10 ** group.rank()).sum())
    everyone = torch.arange(4.0)[:, None] * 11 / real.sum(1, keepdim=True).clamp(min=1)
    assert_close(row.grad, packer.pack(everyone * real))


class Alone:
    """A group of one rank, with nobody to talk to."""

    def size(self) -> int:
        return 1

    def rank(self) -> int:
        return 0


@pytest.mark.parametrize("group", [None, Alone()], ids=["no group", "a group of one"])
@pytest.mark.parametrize("gradient", ["own", "summed"])
def test_one_rank_talks_to_nobody(group: Any, gradient: Any) -> None:
    share, bounds = torch.randn(2, 4), torch.tensor([0, 4])
    assert size_and_rank(group) == (1, 0)
    assert gather_sequence(share, group, gradient) is share
    assert gather_packed_row(share, bounds, group, gradient) is share
    assert split_packed_row(share, bounds, group) is share
    assert sum_over_ranks(share, group, gradient) is share
    assert sum_gradient(share, group) is share
    assert broadcast_from_last_stage(share, group, torch.device("meta")) is share
    assert zigzag_split(share, 1, 0) is share
    assert zigzag_merge([share]) is share
    assert torch.equal(zigzag_places(bounds, 4, 1), torch.arange(4))
    if group is None:
        assert torch.equal(gather_shares(share, None, gradient), share[None])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="gradient: expected 'own' or 'summed', got 'twice'"):
        gather_sequence(torch.zeros(1), None, "twice")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gradient: expected 'own' or 'summed'"):
        sum_over_ranks(torch.zeros(1), None, "twice")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"row: expected \[1, 5\], got \[1, 4\]"):
        sum_per_sequence(torch.zeros(1, 4), plan_packing([5]))
    with pytest.raises(ValueError, match=r"mask: expected \[1, 5\], got \[1\]"):
        sum_per_sequence(torch.zeros(1, 5), plan_packing([5]), mask=torch.ones(1))
    with pytest.raises(ValueError, match=r"zigzag shares, two chunks of equal length, got \[1, 3\]"):
        zigzag_merge([torch.zeros(1, 3)] * 2)  # one position dropped: the order of the others would be lost


def test_sums_of_16_bits_are_counted_in_32() -> None:
    row = torch.ones(1, 1000, dtype=torch.bfloat16)
    assert sum_per_sequence(row, plan_packing([1000])).tolist() == [1000]
