"""Results of a head that has changed are NaN, those of any other stay as they are."""

import torch

from mcore_unpatch.compat.logits.lazy import _where


def test_where() -> None:
    values = torch.arange(3.0)
    assert _where(None, values) is values
    assert _where(torch.tensor(True), values).tolist() == [0.0, 1.0, 2.0]
    assert _where(torch.tensor(False), values).isnan().all()
    chosen = torch.arange(3)  # what argmax gives has no NaN
    assert _where(torch.tensor(False), chosen) is chosen
