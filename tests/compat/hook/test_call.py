"""The typed view of the hook's call, the results object, and the context."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from mcore_unpatch.compat import (
    AsTuple,
    Compose,
    Handle,
    HookCall,
    HookContext,
    HookError,
    LogProbs,
    Outputs,
    TopKLogits,
)
from mcore_unpatch.compat.hook.call import KEYWORDS


def _keywords(**changes: Any) -> dict[str, Any]:
    return dict.fromkeys(KEYWORDS) | {"scale_logits": lambda logits: logits} | changes


def test_the_sixteen_keywords_and_whatever_comes_later() -> None:
    call = HookCall.of(_keywords(labels=torch.ones(1), added_in_a_later_release=7))
    assert len(KEYWORDS) == 16
    assert call.labels is not None
    assert call.extras == {"added_in_a_later_release": 7}


def test_a_call_cannot_be_changed() -> None:
    call = HookCall.of(_keywords())
    with pytest.raises(FrozenInstanceError):
        call.labels = torch.ones(1)  # type: ignore[misc]
    with pytest.raises(TypeError):
        call.extras["a"] = 1  # type: ignore[index]


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
    assert HookContext.of({"temperature": 2.0, "topic": "x"}) == HookContext(temperature=2.0, extra={"topic": "x"})
    context = HookContext(temperature=0.5)
    assert HookContext.of(context) is context
    assert HookContext.of({"extra": {"topic": 1}, "other": 2}) == HookContext(extra={"topic": 1, "other": 2})
    assert HookContext.of({"extra.loss_mask": 1, 2: 3}) == HookContext(extra={"loss_mask": 1, 2: 3})
    with pytest.raises(TypeError, match="expected a HookContext, a mapping or None, got int"):
        HookContext.of(3)
    for slip, meant in (
        ("loss_mask", "mask"),
        ("temp", "temperature"),
        ("label", "labels"),
        ("token_labels", "labels"),
    ):
        with pytest.raises(TypeError, match=rf"unknown key '{slip}'; did you mean '{meant}'\?"):
            HookContext.of({slip: 1})
    with pytest.raises(TypeError, match=r"unknown key 'temprature'; did you mean 'temperature'\?"):
        HookContext.of({"temprature": 2.0})


@pytest.mark.parametrize("key", ["te", "ma", "x", "", "top_p", "extras_of_mine", 3])
def test_a_key_of_ones_own_goes_into_extra(key: Any) -> None:
    assert HookContext.of({key: 1, "temperature": 2.0}) == HookContext(temperature=2.0, extra={key: 1})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tea", "teacher"),
        ("mas", "mask"),
        ("gro", "groups"),
        ("my_labels", "labels"),
        ("mask_of_mine", "mask"),
        ("teachers", "teacher"),
        ("lengts", "lengths"),
        ("tokenids", "token_ids"),
    ],
)
def test_a_key_that_looks_like_a_field_is_refused(key: str, meant: str) -> None:
    for values in ({key: 1}, {"other": 2, key: 1}):
        with pytest.raises(TypeError, match=rf"unknown key '{key}'; did you mean '{meant}'\?"):
            HookContext.of(values)
    assert HookContext.of({f"extra.{key}": 1}).extra == {key: 1}


def test_a_processor_is_an_instance_that_can_be_called() -> None:
    for make in (Compose, AsTuple):
        with pytest.raises(TypeError, match=r"pass an instance: LogProbs\(\)"):
            make(LogProbs)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected a callable that takes the hook's keywords, got 3"):
            make(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k: expected at least 1, got 0"):
        TopKLogits(k=0)


@pytest.mark.parametrize(("holders", "undone"), [(0, True), (1, True), (2, False), (3, False)])
def test_who_holds_it_too_keeps_it(holders: int, undone: bool) -> None:
    handle, said = Handle(), []
    handle.on_removal(lambda: said.append("undone"))
    for _ in range(holders):
        handle.claim()
    with handle:
        assert not said
    assert said == ["undone"] * undone
    handle.remove()
    assert said == ["undone"]
    with pytest.raises(HookError, match="was removed"), handle:
        pass
