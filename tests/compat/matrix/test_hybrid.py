"""A HybridModel and the GPTModel of the same layers and weights: the same bits, whatever is asked, however it is run.

GPTModel has the hook, and HybridModel has it through its output layer alone.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.faithful import inputs_for
from harness.models import Case, equal_pair
from harness.oracle import gradients_of
from harness.pool import MAIN
from matrix.test_matrix import CASES
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from torch import Tensor

from mcore_unpatch.compat import (
    Compose,
    DistillationLoss,
    Entropy,
    HeadInputs,
    Logits,
    LogProbs,
    LogProbsAndEntropy,
    LogProbsAt,
    SumPiSquared,
    TeacherTopK,
    TokenLoss,
    TopKLogits,
    add_value_head,
    call_with_processor,
    gpt_parameter_names,
)
from mcore_unpatch.compat.hook.hybrid import _gpt_name
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from mcore_unpatch.compat.skyrl import call_model_with_fused_lm_head
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_engine, fused_forward_model_gen
from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess

MOE = [
    Case(moe=True),
    Case(moe=True, mtp=1, tied=True),
    Case(moe=True, recompute=True, dtype=torch.bfloat16),
    Case(moe=True, tp=2, sequence_parallel=True, packed=True),
    Case(moe=True, cp=2, mtp=1),
]
PLAIN = [case for case in CASES if not case.hybrid]
FIRST = [Case(), Case(tied=True, mtp=1), Case(tp=2, sequence_parallel=True, packed=True), MOE[0]]
ALL_CASES = [*FIRST, *(case for case in [*PLAIN, *MOE] if case not in FIRST)]
# On Megatron's main branch the log of MoE losses has no room for the MTP layers of a HybridModel (#6748).
RUN = [row for row in on_releases(ALL_CASES, older=4) if row[0] != MAIN or not (row[1].moe and row[1].mtp)]
EVERY = (
    *(LogProbs(), Entropy(), LogProbsAndEntropy(), TokenLoss(), TopKLogits(k=3), LogProbsAt()),
    *(SumPiSquared(), DistillationLoss(rest="renormalised")),
)


def _found(model: Any, results: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The results, every gradient under the name of GPTModel, and what Megatron logged of its MTP loss."""
    random = torch.Generator().manual_seed(3)
    weighed = [(value * torch.randn(value.shape, generator=random)).sum() for value in results.values()]
    torch.autograd.backward(sum(one for one in weighed if one.requires_grad))
    names = gpt_parameter_names(model) if type(model).__name__ == "HybridModel" else {}
    gradients = {names.get(name, name): gradient for name, gradient in gradients_of(model).items()}
    logged = {f"logged {name}": value for name, value in MTPLossLoggingHelper.tracker.items() if torch.is_tensor(value)}
    MTPLossLoggingHelper.tracker.clear()
    model.zero_grad()
    return {**results, **gradients, **logged}


def _same(hybrid: dict[str, Tensor], gpt: dict[str, Tensor]) -> None:
    assert hybrid.keys() == gpt.keys()
    assert [name for name, value in gpt.items() if not torch.equal(hybrid[name], value)] == []
    assert any(value.abs().max() > 0 for name, value in gpt.items() if name.endswith("weight"))


def _every_processor(case: Case, model: Any) -> dict[str, Tensor]:
    inputs = inputs_for(case)
    shape, random = inputs["input_ids"].shape, torch.Generator().manual_seed(4)
    ids = torch.stack([torch.randperm(case.vocab, generator=random)[:3] for _ in range(shape.numel())]).view(*shape, 3)
    teacher = TeacherTopK(ids, torch.randn(ids.shape, generator=random).log_softmax(-1))
    every = Compose(*EVERY, *([Logits()] if case.head_dtype is None else []))  # Megatron's product takes one dtype
    out = call_with_processor(model, every, context={"token_ids": ids, "teacher": teacher}, **inputs)
    results = {name: value for name, value in out.items() if value.is_floating_point()}
    unlabelled = {**inputs, "labels": None}
    results["hidden"] = call_with_processor(model, HeadInputs(), **unlabelled)
    results["shifted"] = call_with_processor(model, LogProbs(shift="next_token", temperature=0.7), **unlabelled)
    return _found(model, results)


@pytest.mark.parametrize(("release", "case"), RUN, ids=str)
@on_ranks
def test_every_processor_and_a_value_head(case: Case) -> None:
    hybrid, gpt = equal_pair(case)
    assert sorted(gpt_parameter_names(hybrid).values()) == sorted(gpt.state_dict())
    _same(_every_processor(case, hybrid), _every_processor(case, gpt))
    if case.mtp or case.head_dtype is not None:
        return
    inputs = {**inputs_for(case), "labels": None}
    found = []
    for model in (hybrid, gpt):
        torch.manual_seed(5)
        add_value_head(model)
        found.append(_found(model, {"values": model(**inputs)}))
    _same(*found)


def _through_the_shims(case: Case, model: Any) -> dict[str, Tensor]:
    inputs = inputs_for(case)
    tokens, labels = inputs["input_ids"], inputs["labels"]
    hidden = call_model_with_fused_lm_head(model, **{**inputs, "labels": None}, output_processor_context={})
    of_tokens = {**inputs, "labels": tokens}
    megatrons = model(**of_tokens, **linear_ce_fusion_kwargs(model, entropy=True))
    theirs = model(**of_tokens, **linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    lengths = [tokens.shape[1], tokens.shape[1] - 4]
    real = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
    padded = fused_forward_model_gen()(model, tokens, None, real, labels, real, 0.7)
    rows = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    engine = fused_forward_model_engine()(model, nested, nested, None, 0.7, True, 0, mtp_enable_train=bool(case.mtp))
    results = {"skyrl": hidden, "nemo_rl": theirs, **{f"nemo_rl {name}": value for name, value in megatrons.items()}}
    results |= {f"verl {name}": value for name, value in padded.items()}
    results |= {f"verl nested {name}": value.values() for name, value in engine.items()}
    if case.mtp:
        patch_postprocess(model, mtp_updates_lm_head=False)
        patch_mtp_layer_get_embeddings(model)
        results["verl logits"] = model(**inputs)
    return _found(model, results)


def test_layers_that_a_gptmodel_has_not_are_named() -> None:
    for name in (
        "decoder.layers.0.mixer.A_log",
        "decoder.layers.2.mlp.linear_fc1.weight",
        "decoder.layers.1.norm.weight",
    ):
        with pytest.raises(ValueError, match=rf"^{name}: a GPTModel has no such layer; only"):
            _gpt_name(name)


SHIMS = [Case(), Case(mtp=1), Case(moe=True, tied=True, mtp=2), Case(tp=2, sequence_parallel=True)]


@pytest.mark.parametrize(("release", "case"), on_releases(SHIMS, older=2), ids=str)
@on_ranks
def test_every_shim(case: Case) -> None:
    hybrid, gpt = equal_pair(case)
    _same(_through_the_shims(case, hybrid), _through_the_shims(case, gpt))
