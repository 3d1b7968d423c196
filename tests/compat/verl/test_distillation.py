"""veRL's own loss from a teacher's top k, as released, and the same at the hook."""

import ast
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close

from mcore_unpatch.compat import DistillationLoss, TeacherTopK, call_with_processor

K = 6


def _agrees(case: Case, source: str) -> None:
    start_world(case)
    model, batch = build_model(case), batch_of(case)
    inputs = {name: batch[name] for name in ("input_ids", "position_ids")} | {"attention_mask": None}
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(case.batch, case.sequence, case.vocab, generator=generator)
    log_probs, ids = logits.log_softmax(-1).topk(K)
    scope: dict[str, Any] = {"torch": torch, "Optional": Optional}
    exec(source, scope)
    with torch.compiler.set_stance("force_eager"):  # a part of it is Megatron's, and compiled
        theirs = scope["_VocabParallelKLDivergence"].apply(model(**inputs), log_probs, ids, None)[0]
    torch.autograd.backward(theirs.square().sum())
    expected = gradients_of(model)
    model.zero_grad()
    processor, context = DistillationLoss(rest="ignored"), {"teacher": TeacherTopK(ids, log_probs)}
    ours = call_with_processor(model, processor, context=context, **inputs)
    torch.autograd.backward(ours.square().sum())
    assert_close(ours, theirs)
    assert_agree(gradients_of(model), expected)


@pytest.mark.parametrize("case", [Case(), Case(tp=2)], ids=str)
def test_the_losses_and_gradients_of_forward_kl_topk(release: str, case: Case, verl_091: str) -> None:
    text = (Path(verl_091) / "verl/trainer/distillation/megatron/losses.py").read_text()
    wanted = ("vocab_parallel_log_softmax", "_VocabParallelKLDivergence")
    parts = [node for node in ast.parse(text).body if getattr(node, "name", None) in wanted]
    run_on_ranks(release, case.ranks, _agrees, case, "\n\n".join(map(ast.unparse, parts)))
