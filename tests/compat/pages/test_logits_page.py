"""The functions of docs/compat-logits.md on real models, against each other and Megatron's default logits."""

import re
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model
from harness.oracle import gradients_of
from harness.pages import DOCS, from_page
from harness.rounding import assert_agree
from torch import Tensor

from mcore_unpatch.compat import LazyLogits, ProcessGroups
from mcore_unpatch.compat.logits.lazy import LMHead

PAGE = "compat-logits.md"


def example(name: str) -> Any:
    return from_page(PAGE, name)


def _inputs(case: Case) -> tuple[dict[str, Any], Tensor]:
    inputs = {**batch_of(case), "attention_mask": None}
    return inputs, inputs.pop("labels")


@on_ranks
def test_before_and_after() -> None:
    inputs, labels = _inputs(Case())
    found = {}
    for name in ("loss_from_logits", "loss_from_lazy_logits"):
        model = build_model(Case())
        output = (example("build")(model) if "lazy" in name else model)(**inputs)
        loss = example(name)(output, labels, labels.sin(), 0.7)
        torch.autograd.backward(loss)
        found[name] = {"loss": loss.detach(), **gradients_of(model)}
        likely = example("next_token")(output) if "lazy" in name else output[:, -1].argmax(-1)
        found[name]["next token"] = likely.double()
    assert_agree(found["loss_from_lazy_logits"], found["loss_from_logits"])


@on_ranks
def test_distillation() -> None:
    inputs, _ = _inputs(Case())
    student, teacher = build_model(Case()), build_model(Case())
    with torch.no_grad():
        teacher.output_layer.weight.mul_(-2)
    p, q = student(**inputs).log_softmax(-1), teacher(**inputs).detach().log_softmax(-1)
    truth = (q.exp() * (q - p)).sum(-1).mean()
    torch.autograd.backward(truth)
    theirs = {"loss": truth.detach(), **gradients_of(student)}
    student.zero_grad()
    ours = example("distillation_loss")(example("build")(student), example("build")(teacher), inputs)
    torch.autograd.backward(ours)
    assert_agree({"loss": ours.detach(), **gradients_of(student)}, theirs)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_the_error_reads_as_on_the_page() -> None:
    head = LMHead.of(torch.empty(151_936, 8, device="meta"), ProcessGroups())
    logits = LazyLogits(torch.empty(1, 4096, 8, device="meta"), head)
    with pytest.raises(TypeError) as caught:
        torch.softmax(logits, -1)
    page = re.sub(r"\s+", " ", (DOCS / PAGE).read_text())
    assert f"TypeError: {caught.value}" in page
