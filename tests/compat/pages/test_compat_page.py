"""The functions of docs/compat.md on real models, against Megatron's default path."""

import re
from typing import Any
from unittest import mock

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import in_float64
from harness.files import DOCS, blocks_of, from_page
from harness.models import Case, batch_of, build_config, build_model, equal_pair, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from hook.test_packing import LENGTHS, one_at_a_time, train_on
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.pipeline_parallel.utils import set_streams
from megatron.core.transformer.module import Float16Module
from torch import Tensor

import mcore_unpatch.compat as compat
from mcore_unpatch.compat import HookContext, call_with_processor

PAGE = "compat.md"


def example(name: str) -> Any:
    return from_page(PAGE, name)


def _model(case: Case) -> tuple[Any, dict[str, Any], Tensor]:
    """A model, its arguments, and log-softmax of its default logits `[b, s, vocab]`."""
    start_world(case)
    model, inputs = build_model(case), {**batch_of(case), "attention_mask": None}
    return model, inputs, model(**{**inputs, "labels": None}).detach()


def _picked(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.double().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)


def _close(found: Tensor, expected: Tensor) -> None:
    assert_close(found, expected.double())


def test_log_probs_of() -> None:
    hidden, weight, labels = torch.randn(2, 5, 8), torch.randn(30, 8), torch.randint(0, 30, (2, 5))
    log_probs, entropy = example("log_probs_of")(hidden, weight, labels)
    logits = hidden @ weight.t() / 0.7
    _close(log_probs, _picked(logits, labels))
    _close(entropy, -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1))


def _policy() -> None:
    model, inputs, logits = _model(Case())
    old = _picked(logits / 0.7, inputs["labels"]).float() * inputs["loss_mask"]
    loss = example("policy_loss")(model, inputs, old, torch.tensor([[1.0], [-2.0]]))
    torch.autograd.backward(loss)
    warm = (logits / 0.7).double().log_softmax(-1)
    mask = inputs["loss_mask"].double()
    expected = torch.tensor([[1.0], [-2.0]]) - 0.01 * (warm.exp() * warm).sum(-1)
    _close(loss, -(expected * mask).sum() / mask.sum())
    assert any(gradient.abs().max() > 0 for gradient in gradients_of(model).values())


def _attached() -> None:
    case = Case(dtype=torch.bfloat16)
    model, inputs, logits = _model(case)
    config = build_config(case)
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(), Float16Module(config, model))
    truth = in_float64(case, model)(**{**inputs, "labels": None}).detach()
    losses = [{"loss": -_picked(one / 0.5, inputs["labels"])} for one in (truth, logits)]
    assert_agree({"loss": example("losses")(wrapped, inputs, 0.5)}, losses[0], torch.bfloat16, plain=losses[1])


def _own_processor() -> None:
    model, inputs, logits = _model(Case())
    reward = torch.tensor([2.0, -1.0])
    context = HookContext(extra={"reward": reward})
    found = call_with_processor(model, example("RewardedLogProbs")(), context=context, **inputs)
    _close(found, _picked(logits, inputs["labels"]) * reward[:, None])


def _hidden_states() -> None:
    model, inputs, logits = _model(Case())
    unlabelled = {**inputs, "labels": None}
    states = example("HiddenStates")(model)
    assert torch.equal(model(**unlabelled), logits)
    assert states.weight is None
    states.on = True
    _close(model(**unlabelled) @ states.weight.T, logits)
    states.on = False
    assert torch.equal(model(**unlabelled), logits)
    states.handle.remove()


def _hybrid() -> None:
    model, inputs, logits = _model(Case(hybrid=True, mtp=1))
    _close(example("hybrid_log_probs")(model, inputs), _picked(logits, inputs["labels"]))


def _named() -> None:
    start_world(Case())
    hybrid, gpt = equal_pair(Case(mtp=1))
    found, expected = example("gpt_weights")(hybrid), gpt.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items() if torch.is_tensor(value))


def _planned() -> None:
    """The output stage of a real plan; CUDA events and streams, which only order the work, are stand-ins here."""
    model, inputs, logits = _model(Case())
    seen: dict[str, Any] = {}
    call_with_processor(model, lambda **keywords: seen.update(keywords), **inputs)
    with mock.patch("torch.cuda.Event"), mock.patch("torch.cuda.Stream"), mock.patch("torch.cuda.stream"):
        set_streams()
        plan = example("plan")(model, inputs)
        plan.record_current_stream()
        plan.pre_process.forward()
        log_probs, entropy = plan.post_process.forward(seen["hidden_states"].detach())
    _close(log_probs, _picked(logits, inputs["labels"]))
    assert entropy.shape == log_probs.shape


@pytest.mark.parametrize("one", [_policy, _attached, _own_processor, _hidden_states, _hybrid, _named, _planned])
def test_examples_of_one_rank(release: str, one: Any) -> None:
    run_on_ranks(release, 1, one)


def _of_the_page(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    def packed(model: Any, row: dict[str, Any]) -> Tensor:
        arguments = (row["input_ids"], row["position_ids"], row["packed_seq_params"])
        found: Tensor = example("packed_log_probs")(model, *arguments, torch.tensor(LENGTHS))
        return found

    return train_on(case, packed)


@pytest.mark.parametrize("case", [Case(batch=3), Case(batch=3, cp=2)], ids=str)
def test_packed_log_probs(release: str, case: Case) -> None:
    rows, gradients = run_on_ranks(release, 1, one_at_a_time, Case(batch=3))[0]
    for found, ours in run_on_ranks(release, case.ranks, _of_the_page, case):
        assert_close(found, rows)
        assert_agree(ours, gradients)


def test_every_block_is_run_and_every_name_exists() -> None:
    names = [re.findall(r"^(?:def|class) (\w+)", block, re.MULTILINE)[0] for block in blocks_of(PAGE)]
    run = {"log_probs_of", "policy_loss", "losses", "HiddenStates", "RewardedLogProbs", "packed_log_probs", "plan"}
    run |= {"hybrid_log_probs", "gpt_weights"}
    assert set(names) == run
    text = (DOCS / PAGE).read_text()
    for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", text):
        if name.endswith("Error") and name not in ("ImportError", "TypeError", "ValueError"):
            assert hasattr(compat, name), name
    processors = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    assert processors
    assert all(hasattr(compat, name) for name in processors)
