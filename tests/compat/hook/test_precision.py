"""What a bf16 model's log-probs are scored in: fp32 from the product on, where Megatron's own logits have 16 bits."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_close, distance

from mcore_unpatch.compat import HeadInputs, LogProbs, call_with_processor

BF16 = torch.bfloat16


@pytest.mark.parametrize("case", [Case(dtype=BF16), Case(dtype=BF16, head_dtype=torch.float32)], ids=str)
@on_ranks
def test_log_probs_of_a_bf16_model(case: Case, model: Any, inputs: Any) -> None:
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
