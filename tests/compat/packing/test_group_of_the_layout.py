"""A row that is one rank's share needs the group that the layout was made for."""

import pytest
import torch

from mcore_unpatch.compat import pack_padded


def test_without_the_group_it_says_which_is_needed() -> None:
    packer = pack_padded(torch.ones(1, 8, dtype=torch.bool), cp_size=2, cp_rank=0)
    row = packer.pack(torch.arange(8).view(1, 8))
    with pytest.raises(ValueError, match="cp_group: expected 2 ranks as in the layout, got None"):
        packer.unpack(row)
