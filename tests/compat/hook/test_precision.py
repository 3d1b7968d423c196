"""What a bf16 model's log-probs are scored in: fp32 from the product on, where Megatron's own logits have 16 bits."""

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.rounding import assert_close, distance

from mcore_unpatch.compat import HeadInputs, LogProbs, call_with_processor


def _scored_in_fp32(case: Case) -> None:
    start_world(case)
    model, inputs = build_model(case), {**batch_of(case), "attention_mask": None}
    head = HeadInputs()
    hidden = call_with_processor(model, head, **{**inputs, "labels": None})
    assert head.weight is not None
    logits = hidden.to(head.weight.dtype).double() @ head.weight.double().T
    exact = logits.log_softmax(-1).gather(-1, inputs["labels"][..., None]).squeeze(-1)
    found = call_with_processor(model, LogProbs(), **inputs)
    assert_close(found, exact)  # as in float32, though hidden states and weight are bf16
    if case.head_dtype is None:
        assert distance(-model(**inputs), exact) > 100 * distance(found, exact)
    if hasattr(model.output_layer, "output_dtype"):  # Megatron's switch for fp32 logits, from 0.20 on
        model.output_layer.output_dtype = torch.float32
        assert torch.equal(call_with_processor(model, LogProbs(), **inputs), found)


@pytest.mark.parametrize("head_dtype", [None, torch.float32], ids=["bf16 head", "fp32 head"])
def test_log_probs_of_a_bf16_model(release: str, head_dtype: torch.dtype | None) -> None:
    run_on_ranks(release, 1, _scored_in_fp32, Case(dtype=torch.bfloat16, head_dtype=head_dtype))
