"""A packed row by its bounds on the device: split and brought together as the plan on the host lays it out."""

import pytest
import torch
from harness import on_ranks
from harness.rounding import assert_close

from mcore_unpatch.compat import pack_padded
from mcore_unpatch.compat.packing.gather import gather_packed_row, split_packed_row

LENGTHS = (11, 0, 3, 16)


@pytest.mark.parametrize("case", [1, 2, 4])
@on_ranks(release="0.19.2")
def test_split_and_gather_agree_with_the_plan(case: int) -> None:
    group = torch.distributed.group.WORLD
    assert group is not None
    ranks, rank = group.size(), group.rank()
    real = torch.arange(16) < torch.tensor(LENGTHS)[:, None]
    values = torch.arange(64).view(4, 16) + 1
    packer = pack_padded(real, cp_size=ranks, cp_rank=rank)
    bounds, share = packer.layout.bounds(torch.device("cpu")), packer.pack(values)
    whole = torch.zeros(1, int(bounds[-1]), dtype=torch.long)
    for start, length, row in zip(bounds.tolist(), LENGTHS, values, strict=False):
        whole[0, start : start + length] = row[:length]
    assert torch.equal(split_packed_row(whole, bounds, group), share)
    assert torch.equal(gather_packed_row(share, bounds, group), whole)
    leaf = share.double().requires_grad_()
    weights = torch.randn(whole.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward((gather_packed_row(leaf, bounds, group, "own") * weights).sum())
    assert_close(leaf.grad, split_packed_row(weights, bounds, group), torch.float64)
