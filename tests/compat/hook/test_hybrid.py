"""HybridModel has no hook of its own: the same call, parameters and MTP loss through its output layer."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model
from harness.rounding import assert_agree, assert_close
from megatron.core.inference.utils import InferenceMode
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

from mcore_unpatch.compat import (
    HookError,
    HookMissingError,
    LogProbs,
    attach,
    call_with_processor,
    fp32_logits,
    provide_hook,
    schedule_plan_with_processor,
)
from mcore_unpatch.compat.hook.call import KEYWORDS
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from mcore_unpatch.compat.skyrl import call_model_with_fused_lm_head
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen

CASE = Case(hybrid=True, mtp=2)


def _logged() -> dict[str, Any]:
    logged = {name: value.clone() for name, value in MTPLossLoggingHelper.tracker.items() if torch.is_tensor(value)}
    MTPLossLoggingHelper.tracker.clear()
    return logged


@on_ranks(CASE)
def test_the_same_call_with_the_mtp_loss_and_without_the_main_product(model: Any, inputs: Any) -> None:
    loss = model(**inputs)
    logged = _logged()
    assert logged
    with pytest.raises(TypeError, match="output_processor"):
        model(**inputs, output_processor=LogProbs())
    names = list(model.state_dict())
    rows: list[int] = []
    seen: dict[str, Any] = {}

    def processor(**keywords: Any) -> Any:
        seen.update(keywords)
        return LogProbs()(**keywords)

    handle = provide_hook(model)
    spy = model.output_layer.register_forward_hook(lambda layer, args, output: rows.append(args[0].shape[0]))
    out = model(**inputs, output_processor=processor, output_processor_context={"temperature": 1.0})
    spy.remove()
    assert_close(out, -loss)
    assert sorted(seen) == sorted(KEYWORDS)
    assert seen["context"] == {"temperature": 1.0}
    assert seen["decoder_input"].shape == seen["hidden_states"].shape == (16, 2, 16)
    assert seen["labels"] is inputs["labels"]
    mine = _logged()
    assert logged.keys() == mine.keys()
    assert all(torch.equal(mine[name], value) for name, value in logged.items())
    # Two MTP layers in full; of the main product one row, and one more that lets the layer's own hooks run.
    assert rows == [16, 16, 1, 1]
    assert list(model.state_dict()) == names
    assert torch.equal(model(**inputs), loss)  # a call without the keywords is as it was
    positional = [inputs[name] for name in ("input_ids", "position_ids", "attention_mask")]
    out = model(*positional, None, inputs["labels"], output_processor=LogProbs())
    assert_close(out, -loss)
    with attach(model, LogProbs()):
        assert_close(model(**inputs), -loss)
    assert_close(model(**inputs, output_processor=LogProbs()), -loss)
    handle.remove()
    for module in (model, model.decoder, model.mtp, model.output_layer):
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def _checkpoint_keys(model: Any) -> dict[str, Any]:
    """Names, shapes and places of all that a distributed checkpoint would hold."""
    return {
        name: (getattr(part, "key", None), getattr(part, "global_shape", None), getattr(part, "global_offset", None))
        for name, part in model.sharded_state_dict().items()
    }


@on_ranks(CASE)
def test_checkpoints_stay_as_they_are(model: Any, inputs: Any) -> None:
    keys, names = _checkpoint_keys(model), [name for name, _ in model.named_parameters()]
    with attach(model, LogProbs()):
        model(**inputs)
        assert _checkpoint_keys(model) == keys
        assert [name for name, _ in model.named_parameters()] == names
        saved = {name: value.clone() for name, value in model.state_dict().items() if torch.is_tensor(value)}
        expected = model(**inputs)
    other = build_model(CASE)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    with attach(other, LogProbs()):
        other.load_state_dict(saved, strict=False)
        assert torch.equal(other(**inputs), expected)
    assert len(keys) > 10


@on_ranks(CASE)
def test_what_cannot_be_served_is_refused_with_the_reason(model: Any, inputs: Any) -> None:
    with provide_hook(model), InferenceMode.active(), pytest.raises(HookError, match="inference mode"):
        model(**inputs, output_processor=LogProbs())
    with pytest.raises(HookMissingError, match=r"no build_schedule_plan .* \(HybridModel has none\)"):
        schedule_plan_with_processor(model, LogProbs(), **inputs)
    model.config.defer_embedding_wgrad_compute = True
    with pytest.raises(HookError, match="defer_embedding_wgrad_compute"):
        provide_hook(model)


class _ByKeyword(torch.nn.Module):
    """Calls the layer as `input_=...`, as GPTModel does on Megatron's dev branch; no release does."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name in ("layer", "_modules") else getattr(self.layer, name)

    def forward(self, hidden: Any, **kwargs: Any) -> Any:
        return self.layer(input_=hidden, **kwargs)


@on_ranks(CASE)
def test_an_output_layer_called_by_keyword(model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbs(), **inputs)
    logits = model(**{**inputs, "labels": None})
    with provide_hook(model), fp32_logits(model):
        layer = model.output_layer
        model.output_layer = _ByKeyword(layer)
        assert model(**{**inputs, "labels": None}).dtype is logits.dtype is torch.float32

        def processor(**keywords: Any) -> Any:
            return LogProbs()(**keywords | {"output_layer": layer})

        assert torch.equal(model(**inputs, output_processor=processor), expected)


class Hooked(HybridModel):
    """Stands for a HybridModel with the hook in its own `forward`, as GPTModel has it; no release has one yet."""

    def forward(
        self, *args: Any, output_processor: Any = None, output_processor_context: Any = None, **kwargs: Any
    ) -> Any:
        if output_processor is None:
            return super().forward(*args, **kwargs)
        fed: list[Any] = []
        look = self.output_layer.register_forward_pre_hook(
            lambda layer, args, kwargs: fed.append((args[0], kwargs.get("weight"))), with_kwargs=True
        )
        super().forward(*args, **kwargs)
        look.remove()
        given = dict.fromkeys(KEYWORDS) | {name: value for name, value in kwargs.items() if name in KEYWORDS}
        hidden, weight = fed[-1]
        own = {"output_layer": self.output_layer, "config": self.config, "scale_logits": self._scale_logits}
        own |= {"hidden_states": hidden, "output_weight": weight, "context": output_processor_context}
        return output_processor(**given | own)


def _model_again() -> tuple[Any, dict[str, Any]]:
    return build_model(CASE), {**batch_of(CASE), "attention_mask": None}


@on_ranks(CASE)
def test_a_hook_of_its_own_is_used_where_there_is_one(model: Any, inputs: Any) -> None:
    unlabelled = {**inputs, "labels": inputs["input_ids"]}
    mask = torch.ones(2, 16, dtype=torch.bool)

    def results() -> list[torch.Tensor]:
        """Every way in, each of which finds the hook by itself."""
        called = call_with_processor(model, LogProbs(), **inputs)
        with attach(model, LogProbs()):
            attached = model(**inputs)
        hidden = call_model_with_fused_lm_head(model, **inputs, output_processor_context={})
        nemo = model(**unlabelled, **linear_ce_fusion_kwargs(model))
        verl = fused_forward_model_gen()(
            model, inputs["input_ids"], None, mask, inputs["labels"], mask, data_format="bshd", mtp_enable_train=True
        )
        return [called, attached, hidden, nemo, verl["log_probs"]]

    expected = results()
    torch.autograd.backward(expected[0].sum())
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model, inputs = _model_again()
    model.__class__ = Hooked
    with attach(model, LogProbs()):
        assert not model.output_layer._forward_hooks
    found = results()
    for ours, substitute in zip(found, expected, strict=True):
        assert torch.equal(ours, substitute)
    torch.autograd.backward(found[0].sum())
    assert_agree({name: parameter.grad for name, parameter in model.named_parameters()}, gradients)
    assert isinstance(model(**inputs), torch.Tensor)
