"""Each processor of the library on the real model: values, shapes, and one pass over the vocabulary for all."""

from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.test_labels_and_mask import rows_of_the_backend
from harness import on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.rounding import assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import (
    Compose,
    DistillationLoss,
    Entropy,
    HeadInputs,
    HookContext,
    Logits,
    LogProbs,
    LogProbsAndEntropy,
    LogProbsAt,
    MissingContextError,
    Outputs,
    SumPiSquared,
    TokenLoss,
    TopKLogits,
    UnsupportedHeadError,
    call_with_processor,
)
from mcore_unpatch.compat.fused_head import plan
from mcore_unpatch.compat.hook import head


def _model(case: Case) -> tuple[Any, dict[str, Any], Tensor]:
    """A model, its arguments, and the whole logits of its default path in float64."""
    start_world(case)
    model = build_model(case)
    inputs = {**batch_of(case), "attention_mask": None}
    with torch.no_grad():
        shard = model(**{**inputs, "labels": None})
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(shard) for _ in range(group.size())]
    torch.distributed.all_gather(parts, shard, group=group)
    return model, inputs, torch.cat(parts, -1).double()


def _close(mine: Tensor, true: Tensor) -> None:
    assert mine.shape == true.shape
    assert_close(mine, true.double())


@pytest.mark.parametrize("case", [Case(), Case(tp=2, sequence_parallel=True), Case(hybrid=True)], ids=str)
@on_ranks
def test_every_processor_gives_what_the_logits_say(case: Case) -> None:
    model, inputs, logits = _model(case)
    labels, mask = inputs["labels"], inputs["loss_mask"]
    log_softmax = logits.log_softmax(-1)
    picked = log_softmax.gather(-1, labels[..., None]).squeeze(-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)

    def run(processor: Any, **context: Any) -> Any:
        return call_with_processor(model, processor, context=HookContext(**context), **inputs)

    _close(run(LogProbs()), picked)
    _close(run(Entropy()), entropy)
    _close(run(SumPiSquared()), log_softmax.exp().square().sum(-1))
    both = run(LogProbsAndEntropy())
    _close(both.log_probs, picked)
    _close(both["entropy"], entropy)
    _close(run(TokenLoss()), -picked)
    _close(run(TokenLoss()), model(**inputs))
    _close(run(LogProbs(use_loss_mask=True)), picked * mask)
    _close(run(LogProbs(), mask=1 - mask), picked * (1 - mask))
    _close(run(LogProbs(), labels=labels.flip(0)), log_softmax.gather(-1, labels.flip(0)[..., None]).squeeze(-1))
    top = run(TopKLogits(k=5))
    values, ids = logits.topk(5)
    _close(top.topk_logits, values)
    assert torch.equal(top.topk_ids, ids)
    _close(top.logsumexp, logits.logsumexp(-1))
    warm = torch.rand(labels.shape) + 0.5
    expected = (logits / warm[..., None]).log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    _close(run(LogProbs(), temperature=warm), expected)
    expected = (logits / 1.5).log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    for one in (1.5, torch.tensor(1.5), torch.full(labels.shape, 1.5)):
        _close(run(LogProbs(), temperature=one), expected)
        _close(run(LogProbs(temperature=one)), expected)
    narrow = logits[..., :40].log_softmax(-1).gather(-1, labels.clamp(max=39)[..., None]).squeeze(-1)
    _close(run(LogProbs(vocab_size=40)), narrow.where(labels < 40, 0))

    gathered = call_with_processor(model, Logits(), **{**inputs, "runtime_gather_output": True})
    assert torch.equal(gathered, model(**{**inputs, "labels": None, "runtime_gather_output": True}))


def test_processors_that_disagree_cannot_share_a_pass() -> None:
    with pytest.raises(ValueError, match=r"LogProbs has temperature=1\.0, Entropy has temperature=2\.0"):
        Compose(LogProbs(), Entropy(temperature=2.0))
    each = torch.tensor([1.0, 2.0])
    for one, other in ((each, 1.0), (1.0, each), (each, each.clone())):
        with pytest.raises(ValueError, match="must have the same options"):
            Compose(LogProbs(temperature=one), Entropy(temperature=other))
    Compose(LogProbs(temperature=each), Entropy(temperature=each))
    Compose(LogProbs(temperature=float("1.5")), Entropy(temperature=float("1.5")))  # equal is enough
    with pytest.raises(ValueError, match="at least one"):
        Compose()
    with pytest.raises(ValueError, match="both return 'logits'; leave one out"):
        Compose(Logits(), LogProbs(), Logits())
    Compose(TokenLoss(), TokenLoss())


@on_ranks
def test_which_labels_count_and_which_are_shifted() -> None:
    """Those of the context before those of the call; only the input ids are shifted, for labels are aligned."""
    model, inputs, logits = _model(Case())
    tokens, log_probs = inputs["input_ids"], logits.log_softmax(-1)
    following = torch.zeros(tokens.shape, dtype=torch.float64)
    following[:, :-1] = log_probs[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1)
    passed, held = inputs["labels"], (tokens + 2) % 48
    next_token = LogProbs(shift="next_token")
    for call, context in ((None, None), (passed, None), (None, held), (passed, held)):
        given = {**inputs, "labels": call, "context": {} if context is None else {"labels": context}}
        if context is None:
            _close(call_with_processor(model, next_token, **given), following)
        else:
            with pytest.raises(ValueError, match="labels= in the context are labels already: leave them out"):
                call_with_processor(model, next_token, **given)
        if (chosen := call if context is None else context) is not None:
            aligned = log_probs.gather(-1, chosen[..., None]).squeeze(-1)
            _close(call_with_processor(model, LogProbs(), **given), aligned)
    with pytest.raises(MissingContextError, match="pass input_ids= to the model"):
        model(None, decoder_input=torch.ones(16, 2, 16), **_without_ids(inputs), output_processor=next_token)


def _without_ids(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name != "input_ids"}


@on_ranks
def test_a_loss_is_zero_where_megatron_gives_a_number_that_its_mask_hides(model: Any, inputs: Any) -> None:
    ignored = torch.rand(2, 16, generator=torch.Generator().manual_seed(1)) > 0.5
    labels = inputs["labels"].masked_fill(ignored, -100)
    logits = model(**{**inputs, "labels": None})
    theirs = model(**{**inputs, "labels": labels})
    ours = call_with_processor(model, TokenLoss(), **{**inputs, "labels": labels})
    assert_close(theirs[ignored], (logits.logsumexp(-1) - logits.amax(-1))[ignored])
    assert_close(ours, theirs.masked_fill(ignored, 0))


class Tenfold(LogProbs):
    """A subclass with a `__call__` of its own, as a user writes it."""

    def __call__(self, **keywords: Any) -> Any:
        return super().__call__(**keywords) * 10


class Both(LogProbsAndEntropy):
    """The same with several results."""

    def __call__(self, **keywords: Any) -> Any:
        log_probs, entropy = super().__call__(**keywords)
        return Outputs(log_probs=-log_probs, entropy=entropy + 1)


class Halved(LogProbs):
    """One that makes something else of the shared pass."""

    def results(self, call: Any, out: Any) -> dict[str, Any]:
        return {"log_probs": out.logprobs / 2}


@on_ranks
def test_a_subclass_composed_gives_what_it_gives_alone(model: Any, inputs: Any) -> None:
    for processor in (Tenfold(), Halved()):
        alone = call_with_processor(model, processor, **inputs)
        assert not torch.equal(alone, call_with_processor(model, LogProbs(), **inputs))
        for composed in (Compose(processor, Entropy()), Compose(Entropy(), processor), Compose(processor)):
            assert torch.equal(call_with_processor(model, composed, **inputs).log_probs, alone)
        with pytest.raises(ValueError, match="both return 'log_probs'"):
            Compose(LogProbs(), processor)
    alone = call_with_processor(model, Both(), **inputs)
    out = call_with_processor(model, Compose(Both(), TokenLoss()), **inputs)
    assert torch.equal(out.entropy, alone.entropy)
    assert torch.equal(out.log_probs, out.loss)


def test_composed_processors_compare_by_their_parts() -> None:
    assert Compose(LogProbs(), LogProbsAndEntropy()) == Compose(LogProbs(), LogProbsAndEntropy())
    assert Compose(LogProbs()) != Compose(LogProbsAndEntropy())
    assert Compose(LogProbs()) != LogProbs()
    assert len({Compose(LogProbs()), Compose(LogProbs())}) == 1


EVERY: list[Any] = [
    *(LogProbs, Entropy, LogProbsAndEntropy, TokenLoss, LogProbsAt, SumPiSquared, TopKLogits, DistillationLoss)
]


@pytest.mark.parametrize("processor", EVERY)
def test_wrong_options_raise_where_the_processor_is_made(processor: Any) -> None:
    own = {"k": 2} if processor is TopKLogits else {}
    processor(**own)
    wrong: dict[str, Any] = {"shift": "left", "temperature": 0.0, "backend": "cuda", "vocab_size": 0}
    wrong |= {TopKLogits: {"k": 0}, DistillationLoss: {"rest": "none", "beta": 1}}.get(processor, {})
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}: expected"):
            processor(**own | {name: value})
    with pytest.raises(TypeError, match="keep: expected a function"):
        HeadInputs(keep=[])  # type: ignore[arg-type]


@on_ranks
def test_several_processors_share_one_pass_over_the_vocabulary(model: Any, inputs: Any) -> None:
    ids = torch.rand(2, 16, 48, generator=torch.Generator().manual_seed(1)).topk(4).indices

    def run(processor: Any) -> Any:
        return call_with_processor(model, processor, context={"token_ids": ids}, **inputs)

    log_probs, entropy, loss, top, logits, at = parts = [
        *(LogProbs(), Entropy(), TokenLoss(), TopKLogits(k=3), Logits(), LogProbsAt())
    ]
    with mock.patch.object(head, "run_pass", wraps=head.run_pass) as spy:
        out = run(Compose(*parts, LogProbsAndEntropy(), top))
    assert spy.call_count == 1
    assert isinstance(out, Outputs)
    alone = {"log_probs": run(log_probs), "entropy": run(entropy), "loss": run(loss), "logits": run(logits)}
    alone |= {**run(top), "log_probs_at": run(at)}
    assert out.keys() == alone.keys()
    assert all(torch.equal(out[name], value) for name, value in alone.items())
    for part in parts[:2]:  # no more is computed than is given
        with mock.patch.object(head, "run_pass", wraps=head.run_pass) as spy:
            run(part)
        query = spy.call_args.args[2]
        assert (query.labels is not None, query.entropy) == (part is log_probs, part is entropy)
    with pytest.raises(ValueError, match="the 2 and the 3 largest logits under one name; ask for k=3"):
        Compose(top, TopKLogits(k=2))


@on_ranks
def test_weights_that_arrive_in_the_layers_pre_hook_are_waited_for(model: Any, inputs: Any) -> None:
    """What `overlap_param_gather` does: the weight is whole only once the layer's pre-hook has run."""
    expected = call_with_processor(model, LogProbs(), **inputs)
    weight = model.output_layer.weight
    arrived = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()

    def arrive(layer: Any, args: Any) -> None:
        weight.data.copy_(arrived)

    model.output_layer.register_forward_pre_hook(arrive)
    assert torch.equal(call_with_processor(model, LogProbs(), **inputs), expected)


@on_ranks
def test_what_is_missing_or_wrong_is_named(model: Any, inputs: Any) -> None:
    bare = {**inputs, "labels": None, "loss_mask": None}

    def fails(kind: type[Exception], said: str, processor: Any, arguments: dict[str, Any], context: Any = None) -> None:
        with pytest.raises(kind, match=said):
            call_with_processor(model, processor, context=context, **arguments)

    shape, masked = r"expected \[batch, sequence\] = \[2, 16\]", LogProbs(use_loss_mask=True)
    fails(MissingContextError, 'pass labels= to the model or in the context, or use shift="next_', LogProbs(), bare)
    fails(MissingContextError, "pass loss_mask= to the model or mask= in", masked, {**inputs, "loss_mask": None})
    fails(ValueError, f"labels: {shape}", LogProbs(), inputs, {"labels": inputs["labels"][:, :3]})
    for name in ("mask", "temperature"):
        fails(ValueError, f"{name}: {shape}", LogProbs(), inputs, {name: torch.ones(3)})
    fails(TypeError, "expected a HookContext, a mapping or None, got int", LogProbs(), inputs, 7)
    keywords: dict[str, Any] = {}
    call_with_processor(model, lambda **seen: keywords.update(seen), **inputs)
    model.config.defer_embedding_wgrad_compute = True
    with pytest.raises(UnsupportedHeadError, match=r"config\.defer_embedding_wgrad_compute"):
        LogProbs()(**keywords)
    model.config.defer_embedding_wgrad_compute = False
    # What people do to value models and to heads with adapters.
    model.output_layer.forward = model.output_layer.forward
    fails(UnsupportedHeadError, "its forward was replaced on the instance", LogProbs(), inputs)
    del model.output_layer.forward
    model.output_layer = torch.nn.Linear(16, 1, bias=False)
    fails(UnsupportedHeadError, "this model is a critic", LogProbs(), inputs)


@on_ranks(Case(), release="0.19.2")
def test_the_models_own_tokens_are_not_waited_for(model: Any, inputs: Any) -> None:
    """Only the last of each sequence has no label, unless there are lengths: then it pays to look how many have one."""
    batch, length = inputs["labels"].shape
    lengths = torch.arange(batch) + length // 2
    processor = LogProbsAndEntropy(shift="next_token")
    for context, computed in (
        (HookContext(), batch * length),
        (HookContext(lengths=lengths), int((lengths - 1).sum())),
    ):
        exact = call_with_processor(model, processor, context=context, **inputs)
        with mock.patch.object(plan, "waiting_is_free", return_value=False), rows_of_the_backend() as rows:
            found = call_with_processor(model, processor, context=context, **inputs)
        assert rows == [computed]
        for ours, truth in zip(found, exact, strict=True):
            assert_close(ours.detach(), truth.detach())
