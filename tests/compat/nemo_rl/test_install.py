"""The ways in: nothing is patched, others who use the hook are left alone, and what cannot work says so."""

import warnings
from typing import Any
from unittest import mock

import pytest
import torch
from downstream.nemo_rl_calls import FLAG, call_of, patched, with_the_flag
from harness import on_ranks
from harness.models import Case, build_config, build_model
from harness.rounding import assert_close
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.inference.contexts import StaticInferenceContext
from megatron.core.models.gpt.gpt_model import GPTModel
from torch.nn import Module

from mcore_unpatch.compat import (
    AttachmentError,
    HookSwallowedError,
    LegacyPatchError,
    Logits,
    TokenLoss,
    WrapperRefusesError,
    attach,
)
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs, patch_gpt_model_forward_for_linear_ce_fusion


def tokens_of(case: Case) -> dict[str, Any]:
    return {name: value for name, value in call_of(case).items() if name != "labels"}


def expected_log_probs(model: Any, case: Case) -> torch.Tensor:
    logits = model(**tokens_of(case)).double().log_softmax(-1)
    return logits[:, :-1].gather(-1, call_of(case)["labels"][:, 1:, None]).squeeze(-1).float()


@on_ranks
def test_no_class_and_no_instance_is_patched(case: Case) -> None:
    before = {cls: dict(vars(cls)) for cls in (*GPTModel.__mro__, Module)}
    with patched():
        model = build_model(case)
        model(**call_of(case), **FLAG)
        assert "forward" not in vars(model)
        assert before == {cls: dict(vars(cls)) for cls in (*GPTModel.__mro__, Module)}
    with pytest.raises(TypeError, match="return_logprobs_for_linear_ce_fusion"):
        build_model(case)(**call_of(case), **FLAG)


@pytest.mark.parametrize("case", [Case(), Case(tied=True)], ids=str)
@on_ranks
def test_the_flag_alone_changes_a_call(case: Case) -> None:
    model = with_the_flag(case)
    expected = expected_log_probs(model, case)
    assert_close(model(**call_of(case), **FLAG), expected)
    positional = (*tokens_of(case).values(), None, call_of(case)["labels"])
    assert_close(model(*positional, **FLAG), expected)
    plain = build_model(case)
    for call in (tokens_of(case), call_of(case), {**call_of(case), "return_logprobs_for_linear_ce_fusion": False}):
        call_without = {name: value for name, value in call.items() if name not in FLAG}
        assert torch.equal(model(**call), plain(**call_without))
    with pytest.raises(ValueError, match=r"labels are missing.*pass labels=input_ids"):
        model(**tokens_of(case), **FLAG)


@pytest.mark.parametrize("case", [Case(), Case(hybrid=True)], ids=str)
@on_ranks
def test_a_model_that_is_wrapped_later_is_served(case: Case, model: Any) -> None:
    with patched():
        wrapped = DistributedDataParallel(build_config(case), DistributedDataParallelConfig(), model)
    expected = expected_log_probs(model, case)
    assert_close(wrapped(**call_of(case), **FLAG), expected)
    assert_close(wrapped(**call_of(case), **linear_ce_fusion_kwargs(wrapped)), expected)


@on_ranks
def test_other_users_of_the_hook_are_left_alone(case: Case) -> None:
    model = with_the_flag(case)
    plain, call = build_model(case), call_of(case)
    assert torch.equal(model(**call, output_processor=Logits()), plain(**tokens_of(case)))
    with attach(model, TokenLoss()):
        assert_close(model(**call), plain(**call))
        with pytest.raises(AttachmentError, match="attached"):
            model(**call, **linear_ce_fusion_kwargs(model))
    with pytest.raises(AttachmentError, match="another output_processor"):
        model(**call, **FLAG, output_processor=Logits())
    model(**call, **FLAG)


class Swallows(Module):
    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None, **_: Any) -> Any:
        return self.module(input_ids, position_ids, attention_mask, labels=labels)


class Refuses(Swallows):
    def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None) -> Any:
        return self.module(input_ids, position_ids, attention_mask, labels=labels)


@on_ranks
def test_a_wrapper_in_the_way_is_named(case: Case, model: Any) -> None:
    call = call_of(case)
    with pytest.raises(WrapperRefusesError, match="Refuses"):
        linear_ce_fusion_kwargs(Refuses(model))
    wrapper = Swallows(model)
    kwargs = linear_ce_fusion_kwargs(wrapper)
    for _ in range(2):
        with pytest.raises(HookSwallowedError, match="Swallows"):
            wrapper(**call, **kwargs)
        model(**call, **kwargs)  # a success before does not hide the next failure
    before = len(wrapper._forward_hooks), len(wrapper._forward_pre_hooks)
    linear_ce_fusion_kwargs(wrapper)
    assert (len(wrapper._forward_hooks), len(wrapper._forward_pre_hooks)) == before == (1, 1)


def _forward_of_a_patch(*_: Any, **__: Any) -> None:
    raise AssertionError("nobody calls it")


@on_ranks(release="0.19.2")
def test_a_model_that_is_still_patched_is_refused_by_the_patchs_name(case: Case, model: Any) -> None:
    kwargs = linear_ce_fusion_kwargs(model)
    for call in (
        lambda: linear_ce_fusion_kwargs(model),
        lambda: model(**call_of(case), **kwargs),
        lambda: model(**call_of(case), **FLAG),
        lambda: build_model(case),
    ):
        with (
            patched(),
            mock.patch.object(GPTModel, "forward", _forward_of_a_patch),
            pytest.raises(LegacyPatchError, match=r"\._forward_of_a_patch replaced Megatron's method"),
        ):
            call()


@on_ranks
def test_calls_for_inference_keep_no_graph(case: Case, model: Any) -> None:
    call = call_of(case)
    assert model(**call, **linear_ce_fusion_kwargs(model)).requires_grad
    with torch.no_grad():
        assert not model(**call, **linear_ce_fusion_kwargs(model)).requires_grad
    model.eval()
    context = StaticInferenceContext(max_batch_size=case.batch, max_sequence_length=case.sequence)
    result = model(**call, **linear_ce_fusion_kwargs(model), inference_context=context)
    assert not result.requires_grad
    assert_close(result, expected_log_probs(model, case))


@on_ranks(release="0.19.2")
def test_the_chunk_size_is_that_of_the_last_call(case: Case) -> None:
    with patched(7):
        patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=9)
        model = build_model(case)
        assert linear_ce_fusion_kwargs(model)["output_processor"].processor.chunk_size == 9
        assert linear_ce_fusion_kwargs(model, chunk_size=2)["output_processor"].processor.chunk_size == 2
    with pytest.raises(ValueError, match="chunk_size"):
        patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=0)


@pytest.mark.parametrize("case", [Case(), Case(mtp=1), Case(mup=True), Case(mtp=1, mup=True)], ids=str)
@on_ranks
def test_the_flag_says_where_it_keeps_other_numbers_than_megatrons(case: Case) -> None:
    model = with_the_flag(case)
    kept = ["MTP layers are not trained"] * bool(case.mtp) + ["the logits are not scaled by MuP's factor"] * case.mup
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model(**call_of(case), **FLAG)
        model(**call_of(case), **linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    said = [str(one.message) for one in caught if "NeMo RL's numbers" in str(one.message)]
    assert [f"keeps NeMo RL's numbers: {'; '.join(kept)}. For" in text for text in said] == [True] * bool(kept)
    with pytest.raises(ValueError, match="numbers: expected 'megatron' or 'nemo_rl'"):
        linear_ce_fusion_kwargs(model, numbers="mine")
    model.decoder.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(**call_of(case), **linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    assert (model.config.mtp_num_layers, model.mtp_process) == (case.mtp or None, bool(case.mtp))  # as before
