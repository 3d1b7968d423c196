"""Wrappers that call `language_model.forward(...)` pass by the hooks of the model: served where that is possible."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_config
from harness.rounding import assert_close
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.module import Float16Module

from mcore_unpatch.compat import (
    HeadInputs,
    HookBypassedError,
    HookError,
    LogProbs,
    LogProbsAndEntropy,
    attach,
    call_with_processor,
    find_language_model,
)
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from mcore_unpatch.compat.verl.model_forward_fused import (
    fused_forward_model_gen,
    patch_fused_forward,
    unpatch_fused_forward,
)

KINDS = [Case(), Case(hybrid=True), Case(mtp=1)]


class DirectVision(torch.nn.Module):
    """In the way of the vision-language models of Megatron-Bridge: no `**kwargs`, and a call of the method."""

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        self.language_model = language_model

    def forward(
        self,
        input_ids: Any,
        position_ids: Any = None,
        attention_mask: Any = None,
        labels: Any = None,
        loss_mask: Any = None,
        packed_seq_params: Any = None,
    ) -> Any:
        return self.language_model.forward(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=attention_mask,
            labels=labels,
            loss_mask=loss_mask,
            packed_seq_params=packed_seq_params,
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
def test_a_vision_model_that_calls_the_method_is_served(case: Case, model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbsAndEntropy(), **inputs)
    loss = model(**inputs)
    vision = DirectVision(model)
    names, keys = list(vision.state_dict()), list(model.sharded_state_dict())
    with attach(vision, LogProbsAndEntropy()):
        out = vision(**inputs)
        assert torch.equal(out.log_probs, expected.log_probs)
        assert torch.equal(out.entropy, expected.entropy)
        assert list(vision.state_dict()) == names
        assert list(vision.language_model.sharded_state_dict()) == keys
        assert isinstance(vision.language_model, type(model))
        assert find_language_model(vision).model is model
        vision.eval()
        assert not model.training
        # Called as a module the processor runs once too, and one attached to the model itself is the same.
        assert torch.equal(vision.language_model(**inputs).entropy, expected.entropy)
        with attach(model, LogProbsAndEntropy()):
            assert torch.equal(vision(**inputs).entropy, expected.entropy)
        vision.train()
    assert vision.language_model is model
    assert torch.equal(vision(**inputs), loss)
    with attach(vision, HeadInputs()):
        assert vision(**{**inputs, "labels": None}).shape == (2, 16, 16) if not case.mtp else True


@on_ranks(Case(dtype=torch.bfloat16))
def test_through_ddp_and_float16module_and_by_keyword(case: Case, model: Any, inputs: Any) -> None:
    config = build_config(case)
    vision = DirectVision(model)
    vision.config = config
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(), Float16Module(config, vision))
    expected = call_with_processor(model, LogProbs(), **inputs)
    with attach(ddp, LogProbs()):
        assert torch.equal(ddp(**inputs), expected)
    assert torch.equal(call_with_processor(OpenVision(model), LogProbs(), **inputs), expected)


@on_ranks(Case(hybrid=True))
def test_a_hybrid_model_by_keyword(model: Any, inputs: Any) -> None:
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


@on_ranks(Case(mtp=1))
def test_the_shims_serve_it_too(model: Any, inputs: Any) -> None:
    plain = model(**inputs)
    vision = DirectVision(model)
    patch_fused_forward(vision, numbers="megatron")
    out = vision(**inputs)
    assert_close(out.log_probs, -plain)
    unpatch_fused_forward(vision)
    assert vision.language_model is model
    mask = torch.ones(2, 16, dtype=torch.bool)
    forward = fused_forward_model_gen()
    arguments = (inputs["input_ids"], inputs["position_ids"], mask, inputs["labels"])
    expected = forward(model, *arguments, data_format="bshd")
    found = forward(vision, *arguments, data_format="bshd")
    assert torch.equal(found["log_probs"], expected["log_probs"])
    opened = OpenVision(model)
    asked = {**inputs, "labels": inputs["input_ids"]}
    expected = model(**asked, **linear_ce_fusion_kwargs(model))
    assert torch.equal(opened(**asked, **linear_ce_fusion_kwargs(opened)), expected)
