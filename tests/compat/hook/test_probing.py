"""Ways in which the hook does not happen, or is passed by: each told apart, and each with its way out."""

from typing import Any
from unittest import mock

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_model
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.hybrid.hybrid_model import HybridModel

from mcore_unpatch.compat import (
    HookBypassedError,
    HookError,
    HookMissingError,
    HookSwallowedError,
    LegacyPatchError,
    LogProbs,
    MissingContextError,
    WrapperRefusesError,
    attach,
    call_with_processor,
    find_language_model,
    provide_hook,
    schedule_plan_with_processor,
)


class Closed(torch.nn.Module):
    """A wrapper that knows no keywords but its own."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any, loss_mask: Any) -> Any:
        return self.module(input_ids, position_ids, attention_mask, labels=labels)


class Swallowing(Closed):
    """A wrapper that takes anything and passes on what it likes."""

    def forward(  # type: ignore[override]
        self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any, **kwargs: Any
    ) -> Any:
        return self.module(input_ids, position_ids, attention_mask, labels=labels)


class OwnForward(GPTModel):
    """A subclass that wrote its `forward` anew."""

    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        raise NotImplementedError


class Stranger(LanguageModule):
    """Another of Megatron's language models, as BertModel is."""


def forward_of_an_old_release(input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None) -> Any:
    """Stands for a `forward` from before the hook, as an old megatron-core or somebody's patch has it."""


def postprocess_that_ignores_the_hook(self: Any, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
    """A patch of the kind that takes the hook's arguments and never calls them."""
    logits, _ = self.output_layer(hidden_states)
    return logits.transpose(0, 1)


@on_ranks
def test_missing_refused_and_swallowed_are_told_apart(case: Case, model: Any, inputs: Any) -> None:
    def fails(kind: type[Exception], said: str, function: Any, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(kind, match=said):
            function(*args, **kwargs)

    called, closed, swallowing = call_with_processor, Closed(model), Swallowing(model)
    refuses = r"^Closed\.forward takes neither output_processor nor \*\*kwargs.*use attach\(\), which hooks"
    fails(WrapperRefusesError, refuses, called, closed, LogProbs(), **inputs)
    fails(HookSwallowedError, r"Swallowing\.forward", called, swallowing, LogProbs(), **inputs)
    for wrapper in (closed, swallowing):
        with attach(wrapper, LogProbs()):
            assert (wrapper(**inputs) <= 0).all()

    model._postprocess = postprocess_that_ignores_the_hook.__get__(model)
    patch = "postprocess_that_ignores_the_hook"
    fails(HookSwallowedError, patch, called, model, LogProbs(), **inputs)
    with attach(model, LogProbs()):
        fails(HookSwallowedError, patch, model, **inputs)
    in_a_plan = f"{patch} replaced Megatron's method"
    fails(LegacyPatchError, in_a_plan, schedule_plan_with_processor, model, LogProbs(), **inputs)
    del model._postprocess

    model.forward = forward_of_an_old_release
    remove = "forward_of_an_old_release.*remove that patch"
    fails(HookMissingError, remove, called, model, LogProbs(), **inputs)
    fails(HookMissingError, remove, attach, model, LogProbs())
    fails(HookMissingError, remove, provide_hook, model)
    del model.forward
    subclassed, stranger = build_model(case), build_model(case)
    subclassed.__class__, stranger.__class__ = OwnForward, Stranger
    fails(HookMissingError, r"OwnForward\.forward and pass them on", attach, subclassed, LogProbs())
    only = r"Stranger\.forward has no output_processor; only GPTModel and HybridModel are supported"
    fails(HookMissingError, only, attach, stranger, LogProbs())
    none = r"no Megatron language model \(GPTModel, HybridModel\) found in Closed > Linear"
    fails(HookMissingError, none, find_language_model, Closed(torch.nn.Linear(1, 1)))


class PassingOn(GPTModel):
    """A subclass that does something of its own and passes everything on."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(*args, **kwargs)


class PassingOnHybrid(HybridModel):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("case", [Case(), Case(hybrid=True, mtp=1)], ids=str)
@on_ranks
def test_a_subclass_that_passes_everything_on_has_the_hook(case: Case, model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbs(), **inputs)
    model.__class__ = PassingOnHybrid if case.hybrid else PassingOn
    assert torch.equal(call_with_processor(model, LogProbs(), **inputs), expected)
    first = [inputs[name] for name in ("input_ids", "position_ids", "attention_mask")]
    with attach(model, LogProbs(), legacy={"temperature": "temperature"}):
        assert torch.equal(model(**inputs), expected)
        assert torch.equal(model(*first, None, inputs["labels"], temperature=1.0), expected)


def _noisy(self: Any, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None) -> Any:
    return input_ids


@on_ranks
def test_a_patch_of_the_class_is_seen_when_it_comes_and_forgotten_when_it_goes(model: Any, inputs: Any) -> None:
    call = {name: value for name, value in inputs.items() if name != "loss_mask"}
    before = call_with_processor(model, LogProbs(), **call)
    with mock.patch.object(GPTModel, "forward", _noisy), pytest.raises(HookMissingError, match="remove that patch"):
        call_with_processor(model, LogProbs(), **call)
    assert call_with_processor(model, LogProbs(), **call).equal(before)
    with pytest.raises(MissingContextError, match="pass loss_mask= to the model or mask= in the context"):
        call_with_processor(model, LogProbs(use_loss_mask=True), **call)


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
        assert "test_probing.py" in said
        assert "language_model(...)" in said
    around = Around(model)
    with attach(around, LogProbs()), pytest.raises(HookBypassedError):
        around(**inputs)
    assert issubclass(HookBypassedError, HookError)
    assert torch.isfinite(around(**inputs)).all()
