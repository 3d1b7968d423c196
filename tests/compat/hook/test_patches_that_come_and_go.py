"""What is known of a class is asked again: a patch of it may come after a call, and go before the next."""

from typing import Any
from unittest import mock

import pytest
from harness import on_ranks
from harness.models import Case, batch_of
from megatron.core.models.gpt import GPTModel

from mcore_unpatch.compat import HookMissingError, LogProbs, MissingContextError, call_with_processor


def _noisy(self: Any, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None) -> Any:
    return input_ids


@on_ranks
def test_a_patch_of_the_class_is_seen_when_it_comes_and_forgotten_when_it_goes(model: Any) -> None:
    call = {**batch_of(Case()), "attention_mask": None}
    call.pop("loss_mask", None)
    before = call_with_processor(model, LogProbs(), **call)
    with mock.patch.object(GPTModel, "forward", _noisy), pytest.raises(HookMissingError, match="remove that patch"):
        call_with_processor(model, LogProbs(), **call)
    assert call_with_processor(model, LogProbs(), **call).equal(before)
    with pytest.raises(MissingContextError, match="pass loss_mask= to the model or mask= in the context"):
        call_with_processor(model, LogProbs(use_loss_mask=True), **call)
