"""veRL 0.9's own output processor and the shim's in Megatron's hook: values, every gradient, where the two differ."""

import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from downstream.comparing import Run, assert_same, run
from downstream.training import TEMPERATURE, from_logits
from downstream.verl import verl_files
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_close
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
from torch import Tensor

from mcore_unpatch.compat import HookContext, MissingContextError, call_with_processor
from mcore_unpatch.compat.verl.model_forward_fused import (
    FusedOutputProcessorContext,
    fused_output_processor,
    patch_fused_forward,
)

ONE_ROW = [
    Case(batch=1),
    Case(batch=1, tied=True),
    Case(packed=True),
    Case(batch=1, mtp=1),
    Case(batch=1, tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, tied=True, packed=True),
    Case(cp=2, packed=True),
    Case(batch=1, mup=True),
    Case(batch=1, tp=2),
    Case(tp=2, packed=True, tied=True, mup=True),
]
DECODER, HEAD = "decoder.layers.0.mlp.linear_fc1.weight", "output_layer.weight"


def processed(model: Any, inputs: dict[str, Any], processor: Any, context: Any) -> Run:
    """The model called with the hook's own two arguments."""

    def call() -> dict[str, Tensor]:
        out = model(**inputs, output_processor=processor, output_processor_context=context)
        return {name: getattr(out, name) for name in ("log_probs", "entropy", "hidden_states")}

    return run(model, call)


def legacy(folder: str, model: Any, inputs: dict[str, Any]) -> Run:
    with verl_files(folder) as files:
        theirs = files("model_forward_fused")
        return processed(model, inputs, theirs.fused_output_processor, theirs.FusedOutputProcessorContext(TEMPERATURE))


def shim(model: Any, inputs: dict[str, Any], **options: Any) -> Run:
    processor = partial(fused_output_processor, **options)
    return processed(model, inputs, processor, FusedOutputProcessorContext(TEMPERATURE))


def default_path(model: Any, inputs: dict[str, Any]) -> Run:
    """The same of the logits that Megatron itself makes."""
    hidden: list[Tensor] = []

    def call() -> dict[str, Tensor]:
        hook = model.decoder.register_forward_hook(lambda module, args, output: hidden.append(output))
        logits = gather_from_tensor_model_parallel_region(model(**inputs | {"labels": None}))
        hook.remove()
        results = from_logits(logits, inputs["labels"])
        return {name: value.flatten() for name, value in results.items()} | {"hidden_states": hidden[0]}

    return run(model, call)


@pytest.mark.parametrize("case", ONE_ROW, ids=str)
@on_ranks
def test_the_same_as_verl(case: Case, model: Any, inputs: Any, verl_091: str) -> None:
    theirs, ours = legacy(verl_091, model, inputs), shim(model, inputs)
    assert ours.results["log_probs"].shape == (inputs["labels"].numel(),)
    assert bool(ours.logged) == bool(case.mtp)
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("case", "parameter"),
    [(Case(batch=2), HEAD), (Case(batch=1, mup=True), HEAD), (Case(batch=1, tp=2), DECODER)],
    ids=["several rows", "MuP", "tensor parallel without sequence parallel"],
)
@on_ranks
def test_megatrons_numbers_where_verls_are_others(
    case: Case, model: Any, inputs: Any, verl_091: str, parameter: str
) -> None:
    truth = default_path(model, inputs)
    assert_same(shim(model, inputs, numbers="megatron"), truth)
    assert legacy(verl_091, model, inputs).moved(truth, parameter) > 0.1
    if case.batch > 1:
        with pytest.raises(
            ValueError, match=r"labels \[2, 16\]: with several rows, veRL's kernel pairs .*numbers=\"megatron\""
        ):
            shim(model, inputs)
    else:
        with pytest.warns(UserWarning, match=r"fused_output_processor keeps veRL's numbers: .* numbers=\"megatron\""):
            shim(model, inputs)


@on_ranks(Case(batch=1))
def test_called_by_hand_and_with_other_contexts(model: Any, inputs: Any) -> None:
    """Called by somebody else than Megatron, and with other contexts than ours."""
    expected = shim(model, inputs).results
    few = {
        "hidden_states": expected["hidden_states"],
        "output_layer": model.output_layer,
        "output_weight": None,
        "labels": inputs["labels"],
        "context": SimpleNamespace(temperature=TEMPERATURE),
        "config": model.config,
    }
    for context in (
        few["context"],
        FusedOutputProcessorContext(torch.full_like(inputs["labels"], TEMPERATURE, dtype=float)),
    ):
        out = fused_output_processor(**few | {"context": context})
        assert_close(out.log_probs, expected["log_probs"])
        assert_close(out["entropy"], expected["entropy"])
    labels = inputs["labels"].roll(1)
    whole = HookContext(temperature=TEMPERATURE, labels=labels)
    out = call_with_processor(model, fused_output_processor, context=whole, **inputs)
    assert_close(out.log_probs, shim(model, inputs | {"labels": labels}).results["log_probs"])
    patch_fused_forward(model)
    assert_same(shim(model, inputs), processed(model, inputs, fused_output_processor, few["context"]))
    with pytest.raises(ValueError, match="numbers: expected 'verl' or 'megatron'"):
        shim(model, inputs, numbers="mine")

    for empty in (None, object()):
        with pytest.raises(MissingContextError, match=r"no temperature .*FusedOutputProcessorContext\(temperature="):
            fused_output_processor(**few | {"context": empty})
    with pytest.raises(MissingContextError, match="labels are missing"):
        fused_output_processor(**few | {"labels": None})
    model.config.use_mup = True
    fused_output_processor(**few)
    with pytest.raises(TypeError, match=r"is missing .*scale_logits"):
        fused_output_processor(**few, numbers="megatron")


@on_ranks(Case(batch=1))
def test_megatrons_config_logger_gets_the_same(model: Any, inputs: Any, verl_091: str) -> None:
    dumps = []
    for call in (lambda: legacy(verl_091, model, inputs), lambda: shim(model, inputs)):
        with tempfile.TemporaryDirectory() as model.config.config_logger_dir:
            call()
            (file,) = Path(model.config.config_logger_dir).glob("input_and_logits*.pth")
            dumps.append(torch.load(file, weights_only=False))
    theirs, ours = dumps
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        if value is None:
            assert ours[name] is None
        else:
            assert_close(ours[name].flatten(), value.flatten())
