"""Inference on an attached model: Megatron's own path, by either name of it and after a failure too."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.rounding import assert_close
from megatron.core.inference.contexts import StaticInferenceContext
from megatron.core.inference.utils import InferenceMode

from mcore_unpatch.compat import Entropy, attach


def _model_and_logits(case: Case) -> tuple[Any, dict[str, Any], torch.Tensor]:
    start_world(case)
    model = build_model(case).eval()
    inputs = {**batch_of(case), "attention_mask": None, "labels": None, "runtime_gather_output": True}
    return model, inputs, model(**inputs)


@on_ranks
def test_a_call_that_failed_before_its_processor_ran_is_not_held_against_the_next(case: Case) -> None:
    model, inputs, logits = _model_and_logits(case)
    outside = torch.full_like(inputs["input_ids"], case.vocab + 1000)
    with attach(model, Entropy()):
        with pytest.raises(IndexError):  # in the embedding: the processor was chosen for this call and never ran
            model(**inputs | {"input_ids": outside})
        with InferenceMode.active():
            assert torch.equal(model(**inputs), logits)


@on_ranks
def test_every_way_to_name_the_inference_context_is_known(case: Case) -> None:
    model, inputs, logits = _model_and_logits(case)
    first = [inputs[name] for name in ("input_ids", "position_ids", "attention_mask")]
    for given in ("inference_context", "inference_params", "by position"):
        context = StaticInferenceContext(max_batch_size=case.batch, max_sequence_length=case.sequence)
        context.config = model.config
        with attach(model, Entropy()), torch.no_grad():
            if given == "by position":  # the sixth
                result = model(*first, None, None, context, runtime_gather_output=True)
            else:
                result = model(**inputs, **{given: context})
        assert result.shape[-1] == case.vocab  # logits, where the processor would give one entropy per token
        assert_close(result, logits)
