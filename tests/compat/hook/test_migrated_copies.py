"""Copies of Megatron's forward before and after `unpatch migrate`: the same results and gradients on real models.

The pairs are those of the codemod's own tests; Megatron's part of a copy comes from the release that runs it.
"""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.models import Case, _gpt, build_config, build_model, start_world
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.codemods.edits import Options
from mcore_unpatch.compat import foreign_methods

TESTS = Path(__file__).parents[2]
SAMPLE = TESTS.parent / "examples/tiny_rl"
PAIRS = TESTS / "migrate/codemods/golden/copies"
Call = Callable[..., Tensor]


def load(name: str, side: str) -> ModuleType:
    composed = runpy.run_path(str(PAIRS.parents[1] / "composed.py"))["composed"]
    module = ModuleType(f"{name}_{side}")
    exec(compile(composed((PAIRS / f"{name}.{side}.py").read_bytes()), name, "exec"), module.__dict__)
    return module


def instance(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_forward(model)
    return [call(temperature=0.7), call()]


def method_type(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch([model])
    mask = torch.rand(2, 16, generator=torch.Generator().manual_seed(3))
    return [call(bias=0.5), call(bias=0.25, coefficient=3.0, response_mask=mask)]


def undone(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_forward(model)
    code.patch_forward(model)
    entropy = call()
    code.unpatch_forward(model)
    code.unpatch_forward(model)
    return [entropy, call()]


def for_a_while(code: Any, model: Any, call: Call) -> list[Tensor]:
    with code.top_logits(model, 3):
        top = call()
    return [top, call()]


def lacks_things(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    return [call(loss_mask=None)]


def postprocess(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_postprocess(model)
    return [call(), call(labels=None)]


def nothing_before(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    return [call()]


def wants_the_model(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    values = call()
    model.eval()
    return [values, call()]


def own_parameters(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    weight = torch.rand(48, 16, generator=torch.Generator().manual_seed(3))
    return [call(output_weight=weight, calculate_entropy=True), call(teacher_ids=torch.zeros(2, 16, 3).long())]


def says_something_first(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    with pytest.raises(ValueError, match="labels are needed"):
        call(labels=None)
    return [call(temperature=0.7), call()]


def whole(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    return [call(temperature=0.7), call(loss_mask=None)]


def values(code: Any, model: Any, call: Call) -> list[Tensor]:
    torch.manual_seed(4)
    model.values = torch.nn.Linear(16, 1)
    code.patch(model)
    return [call()]


DRIVERS = [
    instance,
    method_type,
    undone,
    for_a_while,
    lacks_things,
    postprocess,
    nothing_before,
    wants_the_model,
    own_parameters,
    says_something_first,
    whole,
    values,
]
MTP, WITH_MTP = Case(tied=True, mtp=1), (postprocess, whole)
CASES = [(driver, case) for driver in DRIVERS for case in (Case(), MTP if driver in WITH_MTP else Case(mup=True))]


class _Calls:
    """Calls of one model with the same batch."""

    def __init__(self, model: Any, **keywords: Any) -> None:
        self.model, self.keywords = model, keywords

    def __call__(self, **others: Any) -> Tensor:
        result: Tensor = self.model(**{**self.keywords, **others})
        return result


def _results(driver: Callable[..., list[Tensor]], code: Any, model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    """What a driver gives, and the gradients of all of it."""
    results = driver(code, model, _Calls(model, **inputs))
    generator = torch.Generator().manual_seed(5)
    total = sum((one * torch.randn(one.shape, generator=generator)).sum() for one in results)
    torch.autograd.backward(total)
    return {**{str(at): one.detach() for at, one in enumerate(results)}, **gradients_of(model)}


def _assert_same(before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    assert before.keys() == after.keys()
    assert [name for name, value in before.items() if not torch.equal(value, after[name])] == []
    assert any(value.abs().sum() > 0 for value in before.values())


def _before_and_after(name: str, case: Case) -> None:
    start_world(case)
    driver, inputs = globals()[name], inputs_for(case)
    sides = []
    for side in ("in", "out"):
        model = build_model(case)
        sides.append(_results(driver, load(name, side), model, inputs))
    _assert_same(*sides)
    assert not foreign_methods(model)


@pytest.mark.parametrize(("driver", "case"), CASES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_migrated_copy_gives_what_it_gave(release: str, driver: Callable[..., Any], case: Case) -> None:
    run_on_ranks(release, 1, _before_and_after, driver.__name__, case)


def test_every_pair_is_run() -> None:
    assert {path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py")} == {one.__name__ for one in DRIVERS}


def _sample_module(text: str) -> ModuleType:
    losses = ModuleType("tiny_rl.losses")
    exec((SAMPLE / "tiny_rl/losses.py").read_text(), losses.__dict__)
    module = ModuleType("sample")
    with mock.patch.dict(sys.modules, {"tiny_rl": ModuleType("tiny_rl"), "tiny_rl.losses": losses}):
        exec(text, module.__dict__)
    return module


def _fused_forward(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_forward(model)
    log_probs = [call(temperature=0.7), call()]
    code.unpatch_forward(model)
    return [*log_probs, call()]


def _sample_fused_forward(before: str, after: str) -> None:
    """The sample's forward hands on no rotary embeddings: it is right for models that have none."""
    case = Case(batch=16)  # as long as the sequence: the sample gathers labels [b, s] from logits [s, b, vocab]
    start_world(case)
    sides = []
    for text in (before, after):
        torch.manual_seed(99)
        common = {"vocab_size": case.vocab, "max_sequence_length": 64, "position_embedding_type": "learned_absolute"}
        model = _gpt(case, build_config(case), common)
        inputs = {name: one for name, one in inputs_for(case).items() if name != "loss_mask"}
        sides.append(_results(_fused_forward, _sample_module(text), model, inputs))
    _assert_same(*sides)


def _sample_mtp(before: str, after: str) -> None:
    """Without labels, and without the MTP loss that the sample leaves out; it does not fit the calls of 0.18."""
    case = Case(mtp=1)
    start_world(case)
    inputs = {**inputs_for(case), "labels": None}
    sides = []
    for text in (before, after):
        model, code = build_model(case), _sample_module(text)
        model.config.mtp_loss_scaling_factor = 0.0
        if text == after:
            code.patch_mtp(model)
            result = model(**inputs)
        else:
            caught: list[Tensor] = []
            model.decoder.register_forward_hook(lambda module, args, output, caught=caught: caught.append(output))
            model(**inputs)
            result = code._postprocess_with_mtp(model, caught[0], inputs["input_ids"], None, None, None)
        torch.autograd.backward((result * torch.randn(result.shape, generator=torch.Generator().manual_seed(1))).sum())
        sides.append({"logits": result.detach(), **gradients_of(model)})
    _assert_same(*sides)


@pytest.mark.parametrize("name", ["fused_forward", "mtp"])
def test_the_sample_gives_what_it_gave(release: str, name: str) -> None:
    files = {path.relative_to(SAMPLE).as_posix(): path.read_bytes() for path in SAMPLE.rglob("*.py")}
    path = f"tiny_rl/megatron/{name}.py"
    from planning import migrate  # the workers have no such module

    after = migrate(files, Options(unsafe_fixes=True)).files[path]
    run_on_ranks(release, 1, globals()[f"_sample_{name}"], files[path].decode(), after.decode())
