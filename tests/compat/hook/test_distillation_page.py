"""The functions of docs/compat-distillation.md, as they stand there, against logits that are built."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from harness import on_ranks, run_on_ranks
from harness.faithful import inputs_for
from harness.files import from_page
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.packing import Packer
from harness.rounding import assert_agree, assert_close
from harness.training import scheduled
from megatron.core import parallel_state
from torch import Tensor

page = partial(from_page, "compat-distillation.md")
K = 6
LENGTHS = (16, 9)


def _pair(case: Case) -> tuple[Any, Any]:
    """Student and teacher. With the small logits that they start with they would agree but for rounding."""
    pair = build_model(case), build_model(replace(case, hidden=32))
    for model in pair:
        if model.post_process:
            with torch.no_grad():
                model.output_layer.weight.mul_(10)
    return pair


def _log_softmax(model: Any, inputs: dict[str, Any]) -> Tensor:
    names = ("input_ids", "position_ids", "attention_mask")
    result: Tensor = model(**{name: inputs[name] for name in names}).log_softmax(-1)
    return result


def _reverse(student: Tensor, teacher: Tensor) -> Tensor:
    return (student.exp() * (student - teacher.detach())).sum(-1)


@on_ranks
def test_a_teacher_in_the_same_process(case: Case) -> None:
    student, teacher = _pair(case)
    batch = inputs_for(case)
    loss = page("distillation_loss")(student, teacher, batch)
    torch.autograd.backward(loss)
    ours = gradients_of(student)
    student.zero_grad()
    expected = _reverse(_log_softmax(student, batch), _log_softmax(teacher, batch)) * batch["loss_mask"]
    torch.autograd.backward(expected.sum() / batch["loss_mask"].sum())
    assert_close(loss, expected.sum() / batch["loss_mask"].sum())
    assert_agree(ours, gradients_of(student))


def _top_k_inputs(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.rand(case.batch, case.sequence, case.vocab, generator=generator).topk(K).indices
    log_probs = torch.randn(ids.shape, generator=generator).log_softmax(-1)
    real = (torch.arange(case.sequence) < torch.tensor(LENGTHS)[:, None]).long()
    return batch_of(case)["input_ids"], real, ids, log_probs


def _packed(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    start_world(case)
    student = build_model(case)
    tokens, real, ids, log_probs = _top_k_inputs(case)
    packer = Packer(real, cp_size=case.cp, cp_rank=parallel_state.get_context_parallel_rank())
    each = [[packer.pack(one, fill) for one in part.unbind(-1)] for part, fill in ((ids, 0), (log_probs, -torch.inf))]
    row = {"input_ids": packer.pack(tokens), "position_ids": packer.position_ids, "attention_mask": None}
    row["packed_seq_params"] = packer.packed_seq_params()
    found = page("top_k_loss")(student, row, *(torch.stack(part, -1) for part in each))
    losses = packer.unpack(found, cp_group=parallel_state.get_context_parallel_group())
    torch.autograd.backward(losses.square().sum())
    gradients = gradients_of(student)
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=parallel_state.get_context_parallel_group())
    return losses.detach(), gradients


def _from_logits(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    start_world(case)
    student = build_model(case)
    tokens, real, ids, log_probs = _top_k_inputs(case)
    inputs = {"input_ids": tokens, "position_ids": batch_of(case)["position_ids"], "attention_mask": None}
    chosen = _log_softmax(student, inputs).gather(-1, ids)
    losses = (log_probs.exp() * (log_probs - chosen)).sum(-1) * real
    torch.autograd.backward(losses.square().sum())
    return losses.detach(), gradients_of(student)


def test_a_top_k_teacher_with_packing_and_context_parallelism(release: str) -> None:
    ((expected, gradients),) = run_on_ranks(release, 1, _from_logits, Case())
    for losses, ours in run_on_ranks(release, 2, _packed, Case(cp=2)):
        assert_close(losses, expected)
        assert_agree(ours, gradients)


def _with_logits(finish: Any) -> Any:
    return lambda data, chunk: (chunk(**next(data)), finish)


def _stages(case: Case) -> int:
    start_world(case)
    student, teacher = _pair(case)
    whole = [{**batch_of(case, seed), "attention_mask": None} for seed in range(3)]
    calls = [{name: call[name] for name in ("input_ids", "position_ids", "attention_mask")} for call in whole]
    sizes = {"sequence_length": case.sequence, "micro_batch_size": case.batch}
    found = page("distil_over_stages")(student, teacher, calls, **sizes)
    ours = gradients_of(student)

    def keep(logits: Tensor) -> Any:
        return torch.zeros(()), {"log_softmax": logits.log_softmax(-1)}

    targets = iter(scheduled(case, teacher, _with_logits(keep), calls, forward_only=True))

    def finish(logits: Tensor) -> Any:
        loss = _reverse(logits.log_softmax(-1), next(targets)["log_softmax"]).mean()
        return loss, {"loss": loss.detach().clone()}  # Megatron divides the loss in place

    expected = scheduled(case, student, _with_logits(finish), calls)
    assert_agree(ours, gradients_of(student))
    for one, other in zip(found, expected, strict=True):
        assert_close(one["loss"], other["loss"])
    return len(found)


def test_over_pipeline_stages(release: str) -> None:
    assert run_on_ranks(release, 2, _stages, Case(pp=2)) == [0, 3]
