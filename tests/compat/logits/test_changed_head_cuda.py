"""On a GPU a changed head is seen without waiting for the device, unless an optimizer has stepped."""

import pytest
import torch
from harness.gpu import needs_gpu

from mcore_unpatch.compat import HookError, LazyLogits, ProcessGroups
from mcore_unpatch.compat.logits.lazy import LMHead

pytestmark = needs_gpu


def _logits() -> LazyLogits:
    torch.manual_seed(3)
    weight = torch.randn(5000, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
    hidden = torch.randn(40, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
    return LazyLogits(hidden, LMHead.of(weight, ProcessGroups()))


def test_asking_waits_for_nothing() -> None:
    logits = _logits()
    labels = torch.arange(40, device="cuda")
    logits.log_probs(labels)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = logits.log_probs(labels)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.isfinite().all()


def test_a_write_through_data_makes_nan_and_a_step_raises() -> None:
    logits, other = _logits(), torch.nn.Parameter(torch.ones(3, device="cuda"))
    logits.head.weight.data.mul_(1.01)
    assert logits.entropy().isnan().all()
    assert logits.logits().isnan().all()
    other.grad = torch.ones_like(other)
    torch.optim.SGD([other], lr=1.0).step()
    with pytest.raises(HookError, match="written to after the forward"):
        logits.entropy()
    fresh = _logits()
    torch.optim.SGD([other], lr=1.0).step()  # of another model
    assert fresh.entropy().isfinite().all()
