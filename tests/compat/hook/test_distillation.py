"""Log-probs at given tokens and the loss of distillation, against logits that are built, in float64."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.faithful import in_float64, inputs_for
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of, main_logits
from harness.rounding import assert_agree, assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import (
    DistillationLoss,
    HookContext,
    HookError,
    LogProbsAt,
    MissingContextError,
    TeacherStates,
    TeacherTopK,
    call_with_processor,
)

K = 6
TEMPERATURE = 0.13  # the logits of these models are small
CASES = [
    Case(),
    Case(tied=True, mtp=1),
    Case(mup=True),
    Case(hybrid=True, mtp=1),
    Case(tp=2),
    Case(tp=2, sequence_parallel=True, tied=True, mtp=2),
    Case(cp=2, packed=True, mtp=1),
    Case(tp=2, cp=2, sequence_parallel=True, packed=True),
]
Function = Callable[[Tensor], Tensor]


def _whole(logits: Tensor) -> Tensor:
    """`[b, s, vocab]` from every rank's `[s, b, vocab / tp]`."""
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(logits) for _ in range(group.size())]
    torch.distributed.all_gather(parts, logits.detach().contiguous(), group=group)
    return torch.cat(parts, -1).transpose(0, 1)


def _weighted(values: Tensor) -> Tensor:
    weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return (values * weights.to(values.dtype)).sum() / values.numel()


def _materialised(model: Any, inputs: dict[str, Any], function: Function) -> dict[str, Tensor]:
    """What `function` makes of the default path's logits, and all gradients of a weighted sum of it."""
    model.zero_grad()
    logits = main_logits(model, inputs)
    whole = _whole(logits).requires_grad_()
    values = function(whole)
    (gradient,) = torch.autograd.grad(_weighted(values), whole)
    group = parallel_state.get_tensor_model_parallel_group()
    torch.autograd.backward(logits, gradient.chunk(group.size(), -1)[group.rank()].transpose(0, 1).to(logits.dtype))
    return {"values": values.detach(), **gradients_of(model)}


def _ours(model: Any, inputs: dict[str, Any], processor: Any, **context: Any) -> dict[str, Tensor]:
    model.zero_grad()
    values = call_with_processor(model, processor, context=HookContext(**context), **inputs)
    torch.autograd.backward(_weighted(values))
    return {"values": values.detach(), **gradients_of(model)}


def _divergence(a: Tensor, b: Tensor, kind: str, beta: float = 0.5) -> Tensor:
    """Of log-probs `a` of the student and `b` of the teacher, where either may be minus infinity."""

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return torch.where(p > -torch.inf, p.exp() * (p - q), 0.0).sum(-1)

    if kind == "forward":
        return kl(b, a)
    if kind == "reverse":
        return kl(a, b)
    mixture = torch.logaddexp(b + log(beta), a + log(1 - beta))
    return beta * kl(b, mixture) + (1 - beta) * kl(a, mixture)


def _of_top_k(teacher: TeacherTopK, kind: str, rest: str, beta: float) -> Function:
    def function(logits: Tensor) -> Tensor:
        student = (logits / TEMPERATURE).log_softmax(-1)
        theirs = teacher.log_probs.to(logits.dtype)
        if rest == "ignored":
            return _divergence(student.gather(-1, teacher.token_ids), theirs, kind, beta)
        theirs = theirs.log_softmax(-1)
        if rest == "renormalised":
            return _divergence(student.gather(-1, teacher.token_ids).log_softmax(-1), theirs, kind, beta)
        everywhere = torch.full_like(student, -torch.inf).scatter(-1, teacher.token_ids, theirs)
        return _divergence(student, everywhere, kind, beta)

    return function


def _of_logits(teacher: Tensor, kind: str, beta: float) -> Function:
    return lambda logits: _divergence(
        (logits / TEMPERATURE).log_softmax(-1), (teacher / TEMPERATURE).log_softmax(-1).to(logits.dtype), kind, beta
    )


def _tries(teacher: Any, inputs: dict[str, Any], every: bool) -> Iterator[tuple[Any, dict[str, Any], Function]]:
    """A processor, its context, and the same from logits: `every` kind for every teacher, or each of both once."""
    unlabelled = {**inputs, "labels": None}
    with torch.no_grad():
        logits = _whole(main_logits(teacher, unlabelled)).double()
    log_probs, ids = (logits / TEMPERATURE).log_softmax(-1).topk(K)
    yield (
        LogProbsAt(temperature=TEMPERATURE),
        {"token_ids": ids},
        lambda whole: (whole / TEMPERATURE).log_softmax(-1).gather(-1, ids),
    )
    states = TeacherStates.of(teacher, **unlabelled)
    top_k = TeacherTopK(ids, log_probs.float())
    chosen = {"forward": "zero", "reverse": "renormalised", "jsd": "ignored"}
    for kind in chosen:
        options = {"kind": kind, "beta": 0.3, "temperature": TEMPERATURE}
        yield DistillationLoss(**options), {"teacher": states}, _of_logits(logits, kind, 0.3)
        for rest in ("zero", "renormalised", "ignored") if every else (chosen[kind],):
            if (kind, rest) != ("reverse", "zero"):
                processor = DistillationLoss(rest=rest, **options)
                yield processor, {"teacher": top_k}, _of_top_k(top_k, kind, rest, 0.3)


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=4), ids=str)
@on_ranks
def test_every_teacher_gives_what_the_logits_say(case: Case) -> None:
    """Every kind for every teacher in one case, in the others each once: test_linear_kl.py has every kind on shards."""
    teacher = build_model(replace(case, hidden=32, mtp=0, tied=False))
    model = build_model(case)
    if case.hybrid:  # whose logits are smaller still: student and teacher would agree but for rounding
        with torch.no_grad():
            teacher.output_layer.weight.mul_(10), model.output_layer.weight.mul_(10)
    twin = in_float64(case, model)
    inputs = inputs_for(case)
    peak = max(1.0, _whole(main_logits(twin, inputs)).abs().max().item() / TEMPERATURE)
    for processor, context, function in _tries(teacher, inputs, every=case == Case()):
        truth = _materialised(twin, inputs, function)
        ours = _ours(model, inputs, processor, **context)
        assert_agree(ours, truth, plain=_materialised(model, inputs, function), peak=peak)
        assert truth["values"].norm() > 1e-4
    assert all(parameter.grad is None for parameter in teacher.parameters())


def _model_and_tokens() -> tuple[Any, dict[str, Any], Tensor]:
    start_world(Case())
    ids = torch.rand(2, 16, 48, generator=torch.Generator().manual_seed(1)).topk(K).indices
    return build_model(Case()), inputs_for(Case()), ids


@on_ranks
def test_masked_rows_and_rows_with_fewer_tokens() -> None:
    model, inputs, ids = _model_and_tokens()
    log_probs = torch.randn(ids.shape, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    log_softmax = model(**{**inputs, "labels": None}).log_softmax(-1)

    def run(**context: Any) -> Tensor:
        processor = DistillationLoss(use_loss_mask="mask" not in context)
        result: Tensor = call_with_processor(model, processor, context=context, **inputs)
        return result

    chosen = log_softmax.gather(-1, ids)
    expected = (log_probs.exp() * (log_probs - chosen)).sum(-1)
    mask = inputs["loss_mask"]
    assert 0 < mask.sum() < mask.numel()
    assert_close(run(teacher=TeacherTopK(ids, log_probs)), expected * mask)
    assert_close(run(teacher=TeacherTopK(ids, log_probs), mask=1 - mask), expected * (1 - mask))
    # Fewer than k in some rows, none in the first, and ids that do not exist where none is taken.
    taken = torch.arange(K) < torch.arange(32).view(2, 16, 1) % (K + 1)
    gaps = TeacherTopK(ids.where(taken, -7), log_probs.where(taken, -torch.inf))
    some = log_probs.where(taken, -torch.inf).log_softmax(-1)
    expected = (some.exp() * (some - chosen)).where(taken, 0).sum(-1)
    found = run(teacher=gaps, mask=torch.ones(2, 16))
    assert_close(found, expected.nan_to_num())
    assert found[0, 0] == 0
    model.zero_grad()
    torch.autograd.backward(found.sum())
    assert all(gradient.isfinite().all() for gradient in gradients_of(model).values())
    unknown = TeacherTopK(ids.where(mask[..., None] != 0, 48), log_probs)
    assert_close(run(teacher=unknown), run(teacher=TeacherTopK(ids, log_probs)))
    with pytest.raises(ValueError, match="48 is no token of the student's vocabulary"):
        run(teacher=unknown, mask=torch.ones(2, 16))


@on_ranks
def test_what_is_wrong_is_named() -> None:
    model, inputs, ids = _model_and_tokens()
    top_k = TeacherTopK(ids, torch.zeros(ids.shape))
    states = TeacherStates.of(model, **{**inputs, "labels": None})
    cut = replace(states, weight=states.weight[:40])

    def fails(kind: type[Exception], match: str, processor: Any, **context: Any) -> None:
        with pytest.raises(kind, match=match):
            call_with_processor(model, processor, context=context, **inputs)

    fails(MissingContextError, "pass token_ids=", LogProbsAt())
    fails(ValueError, r"token_ids: expected \[batch, sequence, k\]", LogProbsAt(), token_ids=ids[:, 1:])
    fails(MissingContextError, "pass teacher=", DistillationLoss())
    fails(TypeError, "expected TeacherStates or TeacherTopK, got Tensor", DistillationLoss(), teacher=ids)
    fails(ValueError, "reverse KL infinite", DistillationLoss(kind="reverse"), teacher=top_k)
    fails(ValueError, "log_probs: expected", DistillationLoss(), teacher=TeacherTopK(ids, torch.zeros(2, 16, 3)))
    fails(ValueError, "teacher_weight: expected 48 rows", DistillationLoss(), teacher=cut)
    fails(ValueError, "teacher.hidden: expected", DistillationLoss(), teacher=TeacherStates(states.hidden[:1], ids))
    with pytest.raises(ValueError, match="labels: HeadInputs returns hidden states"):
        TeacherStates.of(model, **inputs)
    weight = states.weight.clone()
    weight.untyped_storage().resize_(0)  # as FSDP2 leaves a sharded head
    with pytest.raises(HookError, match="was freed after its forward"):
        TeacherStates.from_inputs(model, states.hidden, weight)
