"""The first call of every shim says in one line of log which side runs, and a later call says nothing."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case

from mcore_unpatch.compat import LogProbs, add_value_head, attach, call_with_processor, requirements
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from mcore_unpatch.compat.skyrl import call_model_with_fused_lm_head
from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen
from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess


@contextmanager
def _log() -> Iterator[list[str]]:
    """What people see of our log: the ranks of a test have switched all warnings off."""
    requirements.say_once.cache_clear()
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage().partition(", in place")[0])  # type: ignore[method-assign]
    before = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logging.getLogger("mcore_unpatch").addHandler(handler)
    yield lines
    logging.getLogger("mcore_unpatch").removeHandler(handler)
    logging.disable(before)


@on_ranks(Case(mtp=1))
def test_every_shim_says_what_runs_at_its_first_call(model: Any, inputs: Any) -> None:
    real = torch.ones(2, 16, dtype=torch.bool)
    batch = (model, inputs["input_ids"], None, real, inputs["labels"], real)
    with _log() as lines:
        for _ in range(2):
            linear_ce_fusion_kwargs(model)
            call_model_with_fused_lm_head(model, **inputs, output_processor_context={})
            with pytest.raises(RuntimeError, match="Event"):  # what a plan consists of, there is on a GPU alone
                gptmodel_forward_1f1b_overlap(*batch)
            fused_forward_model_gen()(*batch)
            patch_postprocess(model)
            call_with_processor(model, LogProbs(), **inputs)
    ours, hook = "mcore_unpatch.compat", "runs on Megatron's output_processor hook"
    shims = ("nemo_rl", "skyrl", "verl.model_forward_1f1b_overlap", "verl.model_forward_fused", "verl.mtp_patch")
    assert sorted(lines) == sorted([f"{ours}.hook.attach {hook}", *(f"{ours}.{shim} {hook}" for shim in shims)])
    with _log() as lines:
        patch_mtp_layer_get_embeddings(model)
    assert lines == ["mcore_unpatch.compat.verl.mtp_patch runs on PyTorch's hooks"]


@on_ranks
def test_attaching_says_so_too(model: Any, inputs: Any) -> None:
    with _log() as lines, attach(model, LogProbs()):
        model(**inputs)
    assert lines == ["mcore_unpatch.compat.hook.attach runs on Megatron's output_processor hook"]


@on_ranks
def test_so_does_a_value_head(model: Any) -> None:
    with _log() as lines:
        add_value_head(model)
    assert lines == ["mcore_unpatch.compat.hook.changed_heads runs on a value layer of its own"]
