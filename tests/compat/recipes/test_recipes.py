"""The functions of docs/recipes.md, as they stand there, on two ranks and against Megatron's default logits."""

from functools import partial
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.files import from_page
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from harness.training import scheduled
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat.packing import zigzag_split

recipe = partial(from_page, "recipes.md")


def call_of(case: Case, seed: int = 0) -> dict[str, Any]:
    batch, rank = batch_of(case, seed), parallel_state.get_context_parallel_rank()
    call = {name: zigzag_split(batch[name], case.cp, rank).contiguous() for name in ("input_ids", "position_ids")}
    return {**call, "attention_mask": None}


def default_log_probs(model: Any, input_ids: Tensor) -> Tensor:
    """`[b, s]` from the default logits of a model on one rank; 0 at the last position."""
    positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)
    log_softmax = model(input_ids, positions, None).log_softmax(-1)
    picked = log_softmax[:, :-1].gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return torch.nn.functional.pad(picked, (0, 1))


def weights_like(values: Tensor) -> Tensor:
    return torch.randn(values.shape, generator=torch.Generator().manual_seed(3))


def over_context_ranks(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=parallel_state.get_context_parallel_group())
    return gradients


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert_agree(ours, theirs)
    assert sum(gradient.norm() for gradient in theirs.values()) > 0.1


def _pipeline(case: Case) -> tuple[list[Tensor], Tensor]:
    start_world(case)
    model = build_model(case)
    calls = [call_of(case, seed) for seed in range(3)]
    how = {"sequence_length": case.sequence, "micro_batch_size": case.batch, "device": "cpu"}

    def loss_of(log_probs: Tensor, call: Any) -> Tensor:
        return (log_probs[:, :-1] * weights_like(log_probs[:, :-1])).mean()

    results = recipe("train_pipeline")(model, calls, loss_of, **how)
    gradients = gradients_of(model)
    again = recipe("train_pipeline")(model, calls, loss_of, **how, forward_only=True)
    assert all(torch.equal(one["log_probs"], other["log_probs"]) for one, other in zip(results, again, strict=True))

    def forward_step(data: Any, chunk: Any) -> Any:
        """The same with the loss of Megatron's own output stage, which is minus the log-prob of the label."""
        call = next(data)
        return chunk(**call, labels=call["input_ids"].roll(-1, 1)), lambda output: (loss_of(-output, call), {})

    scheduled(case, model, forward_step, calls)
    assert_same_gradients(gradients, gradients_of(model))
    return [one["loss"] for one in results], torch.stack([one["log_probs"] for one in results])


def test_pipeline(release: str) -> None:
    first, last = run_on_ranks(release, 2, _pipeline, Case(pp=2))
    torch.testing.assert_close(first, last, rtol=0, atol=0)
    assert first[1].shape == (3, 2, 16)
    assert (first[1][..., :-1] < 0).all()


def _whole(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    start_world(case)
    model = build_model(case)
    log_probs = recipe("whole_log_probs")(model, call_of(case), parallel_state.get_context_parallel_group())
    torch.autograd.backward((log_probs * weights_like(log_probs)).mean())
    return log_probs.detach(), over_context_ranks(gradients_of(model))


def _whole_from_logits(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    start_world(case)
    model = build_model(case)
    log_probs = default_log_probs(model, batch_of(case)["input_ids"])
    torch.autograd.backward((log_probs * weights_like(log_probs)).mean())
    return log_probs.detach(), gradients_of(model)


def test_context_parallel(release: str) -> None:
    (expected, gradients), *_ = run_on_ranks(release, 1, _whole_from_logits, Case())
    for log_probs, ours in run_on_ranks(release, 2, _whole, Case(cp=2)):
        assert_close(log_probs, expected)
        assert_same_gradients(ours, gradients)


def _top_k(case: Case) -> dict[str, Tensor]:
    start_world(case)
    out = recipe("log_probs_and_top_k")(build_model(case), call_of(case), 5)
    return {name: value.detach() for name, value in out.items()}


def _top_k_from_logits(case: Case) -> dict[str, Tensor]:
    start_world(case)
    model, input_ids = build_model(case), batch_of(case)["input_ids"]
    counts = torch.arange(case.sequence) < case.sequence - 1
    logits = model(input_ids, torch.arange(case.sequence).expand_as(input_ids), None).detach()
    topk = logits.topk(5)
    return {
        "log_probs": default_log_probs(model, input_ids).detach(),
        "topk_logits": topk.values * counts[:, None],
        "topk_ids": topk.indices * counts[:, None],
        "logsumexp": logits.logsumexp(-1) * counts,
    }


@pytest.mark.parametrize("case", [Case(tp=2), Case(cp=2)], ids=str)
def test_top_k_logits(release: str, case: Case) -> None:
    expected = run_on_ranks(release, 1, _top_k_from_logits, Case())[0]
    for rank, out in enumerate(run_on_ranks(release, 2, _top_k, case)):
        assert out.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(out[name], zigzag_split(value, case.cp, rank % case.cp))
