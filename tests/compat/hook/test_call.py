"""The typed view of the hook's call, the results object, the context, and what is set for one call alone."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mcore_unpatch.compat import (
    Compose,
    HookCall,
    HookContext,
    LogProbs,
    Outputs,
)
from mcore_unpatch.compat.hook.call import KEYWORDS
from mcore_unpatch.compat.hook.find import OneCallFields


def _keywords(**changes: Any) -> dict[str, Any]:
    return dict.fromkeys(KEYWORDS) | {"scale_logits": lambda logits: logits} | changes


def test_the_sixteen_keywords_and_whatever_comes_later() -> None:
    call = HookCall.of(_keywords(labels=torch.ones(1), added_in_a_later_release=7))
    assert len(KEYWORDS) == 16
    assert call.labels is not None
    assert call.extras == {"added_in_a_later_release": 7}


def test_missing_keywords_are_named() -> None:
    keywords = _keywords()
    del keywords["config"], keywords["labels"]
    with pytest.raises(TypeError, match="is missing labels, config; let Megatron call it"):
        HookCall.of(keywords)


def test_the_scale_of_the_logits_is_asked_of_the_model() -> None:
    assert HookCall.of(_keywords()).logit_scale == 1.0
    assert HookCall.of(_keywords(scale_logits=lambda logits: logits * 0.25)).logit_scale == 0.25
    with pytest.raises(NotImplementedError, match="does not multiply by a constant; use the Logits"):
        _ = HookCall.of(_keywords(scale_logits=torch.tanh)).logit_scale


def test_outputs_answer_by_key_and_by_attribute_and_stay_as_they_are() -> None:
    out = Outputs(log_probs=1, entropy=2)
    assert (out["entropy"], out.entropy, dict(out), len(out)) == (2, 2, {"log_probs": 1, "entropy": 2}, 2)
    log_probs, entropy = out
    assert (log_probs, entropy, "entropy" in out, {**out}) == (1, 2, True, dict(out))
    with pytest.raises(KeyError, match="this call returned no 'loss'; it returned log_probs, entropy"):
        _ = out["loss"]
    with pytest.raises(AttributeError, match="this call returned no 'loss'; it returned log_probs, entropy"):
        _ = out.loss
    with pytest.raises(AttributeError, match="cannot set"):
        out.entropy = 3


def test_a_context_may_be_none_a_mapping_or_itself() -> None:
    assert HookContext.of(None) == HookContext()
    context = HookContext(temperature=0.5, extra={"topic": 1})
    assert HookContext.of({"temperature": 0.5, "extra": {"topic": 1}}) == context
    assert HookContext.of(context) is context
    with pytest.raises(TypeError, match="expected a HookContext, a mapping or None, got int"):
        HookContext.of(3)
    for slip in ("temprature", "loss_mask", "topic", 3):
        with pytest.raises(TypeError, match=rf"unknown key {slip!r}; the keys are groups, .* under 'extra'"):
            HookContext.of({slip: 1})


def test_a_processor_is_an_instance_that_can_be_called() -> None:
    with pytest.raises(TypeError, match=r"pass an instance: LogProbs\(\)"):
        Compose(LogProbs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a callable that takes the hook's keywords, got 3"):
        Compose(3)  # type: ignore[arg-type]


def model_of() -> Any:
    return SimpleNamespace(config=SimpleNamespace(mtp_num_layers=2, other=1), mtp_process=True, run=print)


def test_fields_of_one_call_are_put_back_the_last_first() -> None:
    model, fields = model_of(), OneCallFields()
    config = model.config
    fields.begin()
    fields.set(model, "mtp_process", 7)
    fields.set(model, "mtp_process", 2)
    fields.configure(model, "other", 5)
    assert (model.mtp_process, model.config.other, model.config.mtp_num_layers) == (2, 5, 2)
    assert config.other == 1  # layers keep theirs
    fields.restore()
    assert (model.mtp_process, model.config) == (True, config)


@pytest.mark.parametrize("given", [{}, {"compute_mtp_loss": True}])
def test_without_multi_token_prediction(given: dict[str, Any]) -> None:
    """By the argument where the model has one, and what the caller said of it stays; else by its fields."""
    model, fields, keywords = model_of(), OneCallFields(), dict(given)
    fields.leave_out_mtp(model, keywords, ["labels", "compute_mtp_loss"])
    assert (keywords, model.mtp_process) == ({"compute_mtp_loss": False, **given}, True)
    keywords = {}
    fields.leave_out_mtp(model, keywords, ["labels"])
    assert (keywords, model.mtp_process, model.config.mtp_num_layers) == ({}, False, None)
