"""Lazy logits and the shims' small parts in one process, without ranks or a model: each answer in exact values."""

import importlib
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from downstream.importing import SHIMS
from fused_head.counters import _Watcher
from harness.rounding import assert_close

from mcore_unpatch.compat import (
    HookContext,
    HookError,
    LazyLogits,
    ProcessGroups,
    areal,
    nemo_rl,
    requirements,
    skyrl,
)
from mcore_unpatch.compat.fused_head.settings import HeadSettings
from mcore_unpatch.compat.hook import distillation
from mcore_unpatch.compat.logits import lazy
from mcore_unpatch.compat.logits.lazy import LMHead
from mcore_unpatch.compat.verl.batches import vision_arguments
from mcore_unpatch.compat.verl.installed import warn_where_kept
from mcore_unpatch.compat.verl.model_forward_fused import _row_temperature

WORDS = 30


class Operations(_Watcher):
    """The names of all operations under it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def see(self, name: str, args: Sequence[Any], result: Any) -> None:
        self.names.append(name)


def logits_of(**settings: Any) -> LazyLogits:
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(2, 5, 8, generator=generator), torch.randn(WORDS, 8, generator=generator)
    return LazyLogits(hidden.requires_grad_(), LMHead.of(weight, ProcessGroups(), HeadSettings(**settings)))


def test_the_steps_of_any_optimizer_are_counted() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    before = lazy._steps()[0]
    torch.optim.SGD([parameter]).step()
    assert lazy._steps()[0] == before + 1
    assert logits_of().head.steps == before + 1


def test_a_weight_that_was_written_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, or, where that would mean waiting for the device, with a flag beside the weight."""
    head = logits_of().head
    assert head.read() == (head.weight, None)
    monkeypatch.setattr(lazy, "waiting_is_free", lambda _: False)
    assert head.read()[1] == torch.tensor(True)
    head.weight.data += 1  # nothing counts that
    assert head.read()[1] == torch.tensor(False)
    monkeypatch.undo()
    with pytest.raises(HookError, match="was written to after the forward"):
        head.read()
    counted = logits_of().head
    counted.weight.add_(0)
    with pytest.raises(HookError, match="was written to after the forward"):
        counted.read()
    freed = logits_of().head
    freed.weight.untyped_storage().resize_(0)
    with pytest.raises(HookError, match="was freed after the forward"):
        freed.read()


def test_a_teacher_that_was_written_to_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where finding out would mean waiting, its hidden states are no numbers."""
    monkeypatch.setattr(lazy, "waiting_is_free", lambda _: False)
    teacher = logits_of(logit_scale=0.5)
    call: Any = SimpleNamespace(context=HookContext(teacher=teacher))
    states: Any = distillation._teacher_of(call, None)
    assert torch.equal(states.hidden, teacher.hidden)
    teacher.head.weight.data += 1
    states = distillation._teacher_of(call, None)
    assert states.hidden.isnan().all()
    assert states.weight is teacher.head.weight
    for divided in (teacher / 2, teacher / torch.ones(2, 5, 1)):
        with pytest.raises(ValueError, match="divided by a temperature already"):
            distillation._teacher_of(SimpleNamespace(context={"teacher": divided}), None)  # type: ignore[arg-type]


def test_sums_and_means_are_of_everything() -> None:
    logits = logits_of(logit_scale=0.5)
    real = logits.logits()
    assert_close(logits.sum().detach(), real.sum().detach())
    assert_close(logits.mean().detach(), real.mean().detach())
    per_token = logits / torch.arange(1.0, 11.0).view(2, 5, 1)
    assert_close(per_token.sum().detach(), (real / torch.arange(1.0, 11.0).view(2, 5, 1)).sum().detach())
    for refused in (lambda: logits.mean(-1), lambda: logits.mean(dim=0), lambda: logits.sum(0)):
        with pytest.raises(TypeError, match="sum over some dimensions"):
            refused()


def test_a_shape_ends_in_the_vocabulary() -> None:
    logits: Any = logits_of()
    assert [tuple(logits.reshape(*shape).shape) for shape in ((-1, WORDS), (5, 2, -1), (10, 30))] == [
        (10, WORDS),
        (5, 2, WORDS),
        (10, WORDS),
    ]
    for wrong in ((), (WORDS,), (30, 10), (5, -1), (5.0, 2, WORDS), (WORDS, -1)):
        with pytest.raises((TypeError, RuntimeError), match=r"shape"):
            logits.reshape(*wrong)


MASK = torch.tensor([[True, False, True, False, False], [False, True, True, True, False]])


@pytest.mark.parametrize(
    "index",
    [
        (0,),
        (slice(None), 2),
        (1, slice(1, 4)),
        (None, 0),
        (..., slice(None)),
        (0, ...),
        (MASK,),
        (MASK, slice(None)),
        (MASK.byte(),),
        (slice(None), MASK[0]),
        (slice(None), MASK[0], slice(None)),
        (torch.tensor([1, 0]), torch.tensor([4, 4])),
        (slice(None), slice(None), slice(0, WORDS)),
    ],
    ids=str,
)
def test_tokens_are_selected_as_those_of_a_tensor(index: Any) -> None:
    logits = logits_of()
    assert_close(logits[index].logits().detach(), logits.logits().detach()[index])


@pytest.mark.parametrize(
    ("index", "error", "said"),
    [
        ((0, 0, 0, 0), IndexError, "too many indices for logits [2, 5, 30]: 4"),
        ((MASK, 0, 0), IndexError, "too many indices for logits [2, 5, 30]: 4"),
        ((MASK, 0), TypeError, "an index into the vocabulary"),
        ((0, 0, slice(1, None)), TypeError, "an index into the vocabulary"),
        ((..., 0), TypeError, "an index into the vocabulary"),
        ((..., slice(0, 5)), TypeError, "an index into the vocabulary"),
    ],
    ids=str,
)
def test_the_vocabulary_is_not_indexed(index: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        logits_of()[index]


MUP, RANKS = "the logits are not scaled by MuP's factor", "hidden-state gradients are not summed over the 2 "


@pytest.mark.parametrize(
    ("config", "numbers", "logits_alone", "told"),
    [
        ({}, "verl", False, []),
        ({"use_mup": True}, "verl", False, [MUP]),
        ({"use_mup": True}, "megatron", False, []),
        ({"tensor_model_parallel_size": 2}, "verl", False, [RANKS]),
        ({"tensor_model_parallel_size": 2}, "verl", True, []),
        ({"tensor_model_parallel_size": 2, "sequence_parallel": True}, "verl", False, []),
        ({"tensor_model_parallel_size": 2, "use_mup": True}, "verl", False, [MUP, RANKS]),
    ],
)
def test_where_a_downstreams_numbers_are_not_megatrons(
    config: dict[str, Any], numbers: Any, logits_alone: bool, told: list[str]
) -> None:
    plain = {"use_mup": False, "tensor_model_parallel_size": 1, "sequence_parallel": False}
    whole = SimpleNamespace(**plain | config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_where_kept("shim", numbers, whole, logits_alone=logits_alone)
    said = [str(one.message) for one in caught]
    assert len(said) == bool(told)
    assert all(part in said[0] for part in told)
    assert [part for part in (MUP, RANKS) if said and part in said[0]] == told


@pytest.mark.parametrize(("own", "other", "fits"), [(None, 5, True), (7, 7, True), (7, 8, False), (7, None, False)])
def test_a_teacher_of_the_same_words(own: int | None, other: int | None, fits: bool) -> None:
    logits = logits_of(vocab_size=own)
    if fits:
        logits.require_vocabulary(other)
    else:
        with pytest.raises(ValueError, match=f"its vocab_size is {own} and the student's {other}; give both the same"):
            logits.require_vocabulary(other)


@pytest.mark.parametrize(("grad", "inference_only"), [(True, False), (True, True), (False, False), (False, True)])
@pytest.mark.parametrize("shim", ["nemo_rl", "skyrl"])
def test_a_graph_is_kept_where_both_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, shim: str, grad: bool, inference_only: bool
) -> None:
    """Who calls it under `no_grad` gets none, and neither does a call for inference."""
    hidden, weight = torch.randn(2, 5, 8, requires_grad=True), torch.randn(WORDS, 8)
    tokens, seen = torch.arange(10).view(2, 5), []

    def linear_logprob(*_: Any, **__: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return torch.zeros(5, 2) if shim == "nemo_rl" else torch.zeros(2, 5), None

    module: Any = nemo_rl if shim == "nemo_rl" else skyrl
    monkeypatch.setattr(module, "linear_logprob", linear_logprob)
    group: Any = SimpleNamespace(size=lambda: 1, rank=lambda: 0)
    with torch.set_grad_enabled(grad):
        if shim == "nemo_rl":
            given = (hidden.transpose(0, 1), weight, None, tokens, 0, WORDS, group)
            module.from_parallel_hidden_states_to_logprobs(*given, inference_only=inference_only)
        else:
            module.from_parallel_hidden_to_logprobs(
                hidden, weight, tokens, 0, WORDS, group, inference_only=inference_only
            )
    assert seen == [grad and not inference_only]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: list[str] = []

    def import_module(name: str) -> Any:
        if name in absent:
            raise ModuleNotFoundError(name=name)
        return SimpleNamespace(__version__=version)

    monkeypatch.setattr(requirements, "import_module", import_module)
    version = "0.18.0rc1"
    requirements.require_megatron("The shim")
    version = "0.17.1"
    with pytest.raises(ImportError, match=r"^The shim needs megatron-core >= 0\.18, .* but 0\.17\.1 is installed"):
        requirements.require_megatron("The shim")
    for module, package in (("torch", "torch"), ("triton", "triton"), ("megatron.core", "megatron-core")):
        absent[:] = [module]
        with pytest.raises(ImportError, match=rf"^The shim needs {package}, which is not installed; run `pip install"):
            requirements.require_megatron("The shim")


@pytest.mark.parametrize("shim", sorted(set(SHIMS.values())))
def test_every_shim_asks_for_its_megatron_first(monkeypatch: pytest.MonkeyPatch, shim: str) -> None:
    """Or its own imports would fail with a name that says nothing to its user."""
    monkeypatch.setattr(requirements, "NEEDED", (99, 1))
    monkeypatch.delitem(sys.modules, shim, raising=False)
    with pytest.raises(ImportError, match=rf"^{re.escape(shim)} needs megatron-core >= 99\.1, the first"):
        importlib.import_module(shim)


def test_what_else_is_missing_is_not_blamed_on_the_extra() -> None:
    error = ModuleNotFoundError("No module named 'flask'", name="flask")
    with pytest.raises(ModuleNotFoundError, match="flask"):
        raise requirements.missing_from_extra("The shim", error)
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        raise requirements.missing_from_extra("The shim", ModuleNotFoundError("nothing"))


def test_questions_about_logits_that_no_memory_could_hold() -> None:
    small = logits_of()
    logits = replace(small, hidden=small.hidden.detach()[:1, :1].expand(1 << 30, 1 << 10, 8))
    assert (logits.numel(), logits.nbytes, logits.size(1)) == (WORDS << 40, WORDS << 42, 1 << 10)
    assert (logits.stride(), logits.is_contiguous()) == ((WORDS << 10, WORDS, 1), True)


@pytest.mark.parametrize(("scale", "products"), [(1.0, 0), (0.5, 1)])
def test_real_logits_are_not_copied_for_a_factor_of_one(scale: float, products: int) -> None:
    with Operations() as seen:
        logits_of(logit_scale=scale).logits()
    assert sum(name.startswith("aten.mul") for name in seen.names) == products


def test_real_logits_go_to_the_function_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer's own, with all it was given; lazy logits never do, by position or by name."""
    home, calls = "areal.utils.functional.vocab_parallel", []

    def own(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        return "theirs"

    module = SimpleNamespace(gather_logprobs=own)
    monkeypatch.setitem(sys.modules, home, module)
    for name in ("areal", "areal.utils", "areal.utils.functional"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    real, labels = torch.zeros(2, WORDS), torch.arange(2)
    assert areal.gather_logprobs(real, labels, 0.5, chunk_size=3) == "theirs"
    assert areal.gather_logprobs(logits=real, labels=labels) == "theirs"
    assert calls == [((real, labels, 0.5), {"chunk_size": 3}), ((), {"logits": real, "labels": labels})]
    lazily = logits_of()[0, :2]
    assert torch.equal(areal.gather_logprobs(logits=lazily, labels=labels), areal.gather_logprobs(lazily, labels))
    assert len(calls) == 2
    said = "got Tensor, and there is no areal.utils.functional.vocab_parallel.gather_logprobs"
    module.gather_logprobs = areal.gather_logprobs  # the trainer's own name was bound to ours
    with pytest.raises(TypeError, match=said):
        areal.gather_logprobs(real, labels)
    with pytest.raises(TypeError, match=said):
        areal.gather_logprobs_entropy(real, labels)


@pytest.mark.parametrize(("training", "grad"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("masked", [True, False])
def test_the_labels_of_an_mtp_loss_are_those_of_the_next_token(training: bool, grad: bool, masked: bool) -> None:
    """Where there is such a loss: Megatron has one in training alone."""
    config = SimpleNamespace(context_parallel_size=1)
    model: Any = SimpleNamespace(training=training, config=config)
    mask = torch.tensor([[0, 1, 1, 1]]) if masked else None
    given = {"labels": torch.tensor([[5, 6, 7, 8]]), "loss_mask": mask}
    context = {nemo_rl._CONTEXT: HookContext(groups=ProcessGroups())}
    with torch.set_grad_enabled(grad):
        labels, counted = nemo_rl._mtp_labels(model, given | context)
    if not (training and grad):
        assert labels is None
        assert counted is mask
        return
    assert labels is not None
    assert counted is not None
    assert labels.tolist() == [[6, 7, 8, 0]]
    assert counted.tolist() == [[1, 1, 1, 0]]


def test_images_and_videos_go_to_the_model() -> None:
    names = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
    given = {name: torch.tensor([number]) for number, name in enumerate((*names, "other"))}
    assert vision_arguments(given, torch.device("cpu")) == {name: given[name] for name in names}
    assert vision_arguments(None, torch.device("cpu")) == {}


def test_a_temperature_for_every_token() -> None:
    batch: Any = SimpleNamespace(pack=lambda values, fill: (values, fill))
    tokens = torch.zeros(2, 3)
    nested = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged)
    assert _row_temperature(0.5, tokens, batch) == 0.5
    assert _row_temperature(torch.tensor([[0.5]]), tokens, batch) == 0.5
    by_row = [[2.0] * 3, [4.0] * 3]
    for given in (torch.tensor([2.0, 4.0]), torch.tensor([[2.0], [4.0]]), torch.tensor(by_row)):
        packed: Any = _row_temperature(given, tokens, batch)
        assert (packed[0].tolist(), packed[1]) == (by_row, 1)
    packed = _row_temperature(torch.tensor([2.0, 4.0]), nested, batch)
    assert packed[0].values().tolist() == [2.0, 4.0, 4.0]
    one = torch.nested.nested_tensor([torch.tensor([3.0])], layout=torch.jagged)
    packed = _row_temperature(one, one, batch)
    assert packed[0].values().tolist() == [3.0]
    for wrong in (torch.ones(3), torch.ones(2, 2), torch.ones(2, 3, 1)):
        with pytest.raises(ValueError, match=r"one per sequence or one per token of \[2, 3\], got"):
            _row_temperature(wrong, tokens, batch)
