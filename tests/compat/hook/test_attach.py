"""Attaching a processor to a model whose callers do not know about it."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_config, build_model
from harness.pool import INSTALLED
from harness.rounding import assert_agree, assert_close
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.module import Float16Module
from torch.distributed.fsdp import fully_shard

from mcore_unpatch.compat import (
    AttachmentError,
    Compose,
    Entropy,
    HookContext,
    LogProbs,
    TokenLoss,
    UnsupportedHeadError,
    attach,
    call_with_processor,
    find_language_model,
)
from mcore_unpatch.compat.hook.attach import attach_along


class VisionModel(torch.nn.Module):
    """Stands for a vision-language model: an inner `.language_model`, and a call of its own."""

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        self.language_model = language_model

    def forward(self, tokens: torch.Tensor, position_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        return self.language_model(tokens, position_ids, None, labels=labels)


@pytest.mark.parametrize("case", [Case(), Case(hybrid=True, mtp=1)], ids=str)
@on_ranks
def test_attached_once_used_and_removed_without_a_trace(case: Case, model: Any, inputs: Any) -> None:
    before = model(**inputs)
    names = list(model.state_dict())
    handle = attach(model, LogProbs())
    assert_close(model(**inputs), -before)
    assert attach(model, LogProbs()) is handle
    with pytest.raises(AttachmentError, match="Compose"):
        attach(model, Entropy())
    with pytest.raises(AttachmentError, match="passes its own output_processor"):
        model(**inputs, output_processor=TokenLoss())
    assert list(model.state_dict()) == names
    handle.remove()
    handle.remove()
    assert torch.equal(model(**inputs), before)
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    warm, others = torch.full((2, 16), 0.7), torch.full((2, 16), 0.7)
    with attach(model, LogProbs(temperature=warm)) as handle:
        assert attach(model, LogProbs(temperature=warm)) is handle
        with pytest.raises(AttachmentError, match="Compose"):  # values of tensors are not compared
            attach(model, LogProbs(temperature=others))
        handle.remove()
    with attach(model, Compose(LogProbs(), Entropy())):
        with attach(model, Compose(LogProbs(), Entropy())):
            assert set(model(**inputs).keys()) == {"log_probs", "entropy"}
        assert set(model(**inputs).keys()) == {"log_probs", "entropy"}
    assert torch.equal(model(**inputs), before)


@pytest.mark.parametrize("case", [Case(dtype=torch.bfloat16), Case(dtype=torch.bfloat16, hybrid=True)], ids=str)
@on_ranks
def test_through_ddp_float16module_and_a_vision_model(case: Case, model: Any, inputs: Any) -> None:
    loss = model(**inputs).float()
    config = build_config(case)
    half = Float16Module(config, model)
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(), half)
    with attach(ddp, TokenLoss()):
        assert_close(half(**inputs), loss, torch.bfloat16)
        out = ddp(**inputs)
        assert out.dtype == torch.float32
        assert_close(out, loss, torch.bfloat16)
    with attach(ddp, Compose(TokenLoss(), Entropy())):
        assert_close(ddp(**inputs).loss, loss, torch.bfloat16)
    vision = VisionModel(model)
    with attach(torch.nn.parallel.DistributedDataParallel(vision), Compose(TokenLoss(), Entropy())):
        out = vision(inputs["input_ids"], inputs["position_ids"], inputs["labels"])
        assert_close(out.loss, loss, torch.bfloat16)


@pytest.mark.first
@on_ranks(release=INSTALLED)  # seconds of tracing, and nothing of it is Megatron's
def test_through_torch_compile(model: Any, inputs: Any) -> None:
    loss = model(**inputs)
    compiled = torch.compile(model, backend="eager")
    with attach(compiled, LogProbs()):
        assert_close(compiled(**inputs), -loss)
    with torch.compiler.set_stance("force_eager"):  # each tracing takes seconds
        assert_close(call_with_processor(compiled, LogProbs(), **inputs), -loss)


@on_ranks
def test_the_chunks_of_a_virtual_pipeline_share_a_handle(model: Any, inputs: Any) -> None:
    chunks, other = [model, build_model(Case())], build_model(Case())
    with attach(chunks, Entropy()) as handle:
        assert [chunk(**inputs).shape for chunk in chunks] == [(2, 16)] * 2
        assert attach(chunks, Entropy()) is handle
        with pytest.raises(AttachmentError):
            attach([model, other], Entropy())
        handle.remove()
    assert not any(chunk._forward_hooks for chunk in (*chunks, other))


@on_ranks
def test_legacy_keywords_become_context_and_a_selector_leaves_other_calls_alone(model: Any, inputs: Any) -> None:
    with attach(model, LogProbs(temperature=0.7)) as handle:
        expected = model(**inputs)
    with attach(model, LogProbs(), HookContext(), legacy={"temperature": "temperature"}):
        assert torch.equal(model(**inputs, temperature=0.7), expected)
        assert not torch.equal(model(**inputs), expected)
    with pytest.raises(TypeError, match="unknown key 'temprature'; the keys are groups"):
        attach(model, LogProbs(), legacy={"temperature": "temprature"})
    handle.remove()
    seen: list[Any] = []

    def ours(**keywords: Any) -> str:
        seen.append(keywords["context"])
        return "ours"

    def select(keywords: dict[str, Any]) -> Any:
        return (ours, {"extra": {"topic": 1}}) if keywords.pop("return_log_probs", False) else None

    with attach_along([find_language_model(model)], select, select):
        assert model(**inputs, return_log_probs=True) == "ours"
        assert seen[0].extra == {"topic": 1}
        assert seen[0].groups.tp is model.pg_collection.tp
        assert isinstance(model(**inputs), torch.Tensor)
        assert model(**inputs, output_processor=lambda **_: "another user") == "another user"


@on_ranks(Case(dp=2))
def test_fully_sharded_models_are_served_while_the_head_is_whole(case: Case, model: Any, inputs: Any) -> None:
    torch.autograd.backward(model(**inputs).sum())
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    several = Compose(TokenLoss(), Entropy())
    for processor, loss_of in ((TokenLoss(), torch.sum), (several, lambda out: out.loss.sum() + 0 * out.entropy.sum())):
        whole = fully_shard(build_model(case))
        with attach(whole, processor):
            torch.autograd.backward(loss_of(whole(**inputs)))
        assert_agree({name: parameter.grad.full_tensor() for name, parameter in whole.named_parameters()}, expected)
    head_apart = build_model(case)
    fully_shard(head_apart.output_layer)
    refused = pytest.raises(UnsupportedHeadError, match="sharded between calls")
    with attach(fully_shard(head_apart), TokenLoss()), refused:
        head_apart(**inputs)
