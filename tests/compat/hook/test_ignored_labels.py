"""The model's own tokens as labels: nobody waits for the device to count them, unless lengths make that worth it."""

from typing import Any
from unittest import mock

import torch
from fused_head.test_ignored_rows import rows_of_the_backend
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_close

from mcore_unpatch.compat import HookContext, LogProbsAndEntropy, call_with_processor
from mcore_unpatch.compat.fused_head import plan


@on_ranks(Case(), release="0.19.2")
def test_the_models_own_tokens_are_not_waited_for(model: Any, inputs: Any) -> None:
    """Only the last of each sequence has no label, unless there are lengths: then it pays to look how many have one."""
    batch, length = inputs["labels"].shape
    lengths = torch.arange(batch) + length // 2
    processor = LogProbsAndEntropy(shift="next_token")
    for context, computed in (
        (HookContext(), batch * length),
        (HookContext(lengths=lengths), int((lengths - 1).sum())),
    ):
        exact = call_with_processor(model, processor, context=context, **inputs)
        with mock.patch.object(plan, "waiting_is_free", return_value=False), rows_of_the_backend() as rows:
            found = call_with_processor(model, processor, context=context, **inputs)
        assert rows == [computed]
        for ours, truth in zip(found, exact, strict=True):
            assert_close(ours.detach(), truth.detach())
