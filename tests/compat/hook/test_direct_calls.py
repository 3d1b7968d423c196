"""Wrappers that call `language_model.forward(...)` pass by the hooks of the model: served where that is possible."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case

from mcore_unpatch.compat import HookBypassedError, HookError, LogProbs, attach, call_with_processor

KINDS = [Case(), Case(mtp=1)]


class DirectVision(torch.nn.Module):
    """In the way of the vision-language models of Megatron-Bridge: no `**kwargs`, and a call of the method."""

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        self.language_model = language_model

    def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any, loss_mask: Any) -> Any:
        return self.language_model.forward(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=attention_mask,
            labels=labels,
            loss_mask=loss_mask,
        )


class OpenVision(DirectVision):
    """The same, passing on what it does not know."""

    def forward(self, **kwargs: Any) -> Any:  # type: ignore[override]
        return self.language_model.forward(**kwargs)


class Around(torch.nn.Module):
    """Enters the model inside by its method, where no twin can be put."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, **kwargs: Any) -> Any:
        return self.module.forward(**kwargs)


@pytest.mark.parametrize("case", KINDS, ids=str)
@on_ranks
def test_one_that_passes_keywords_on_is_served_by_keyword(case: Case, model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbs(), **inputs)
    assert torch.equal(call_with_processor(OpenVision(model), LogProbs(), **inputs), expected)


@pytest.mark.parametrize("case", [Case(), Case(hybrid=True)], ids=str)
@on_ranks
def test_where_nothing_can_be_done_the_call_is_refused(case: Case, model: Any, inputs: Any) -> None:
    for around in (DirectVision(model), Around(model)):
        with attach(model, LogProbs()), pytest.raises(HookBypassedError) as caught:
            around(**inputs)
        said = str(caught.value)
        assert f"{type(model).__name__}.forward was called as a plain method" in said
        assert f"by {type(around).__name__}.forward" in said
        assert "test_direct_calls.py" in said
        assert "language_model(...)" in said
    around = Around(model)
    with attach(around, LogProbs()), pytest.raises(HookBypassedError):
        around(**inputs)
    assert issubclass(HookBypassedError, HookError)
    assert torch.isfinite(around(**inputs)).all()
