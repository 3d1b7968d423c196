"""Results go back to the shape of the labels; what only the device knows to be wrong shows in the numbers."""

import pytest
import torch

from mcore_unpatch.compat.fused_head.shards import Rows


@pytest.mark.parametrize("sound", [True, False])
def test_a_flag_on_the_device_turns_numbers_into_nan_and_leaves_ids(sound: bool) -> None:
    rows = Rows(torch.Size([1, 2]), None, None, torch.tensor(sound))
    numbers, ids = rows.spread(torch.tensor([0.5, 2.0])), rows.spread(torch.tensor([3, 4]))
    assert numbers.isnan().all() == (not sound)
    assert torch.equal(ids, torch.tensor([[3, 4]]))
    assert ids.dtype == torch.int64


def test_only_live_rows_are_spread() -> None:
    rows = Rows(torch.Size([4]), torch.tensor([3, 1]), torch.tensor([True, False]), None)
    assert torch.equal(rows.take(torch.arange(4.0)), torch.tensor([3.0, 1.0]))
    assert torch.equal(rows.spread(torch.tensor([5.0, 7.0])), torch.tensor([0.0, 0.0, 0.0, 5.0]))
    assert rows.spread(torch.ones(2, 3)).shape == (4, 3)
