"""An attached model returns `LazyLogits`; what is asked of them is what Megatron's default logits give."""

from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.faithful import TEMPERATURE, in_float64, inputs_for, lowest_dtype, weighted, with_a_default_path
from harness.models import Case, build_config, build_model
from harness.oracle import Result, assert_no_worse, default_path, gradients_of
from harness.rounding import assert_agree
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.module import Float16Module
from torch import Tensor

from mcore_unpatch.compat import AttachmentError, DeferredHead, LazyLogits, attach, call_with_processor

# What a trainer asks, in three ways: everything at once, in two calls, and sample by sample.
WAYS = ("together", "apart", "sliced")


def asked(logits: LazyLogits, labels: Tensor, way: str) -> tuple[Tensor, Tensor]:
    """Log-probs and entropy `[b, s]`."""
    logits = logits.float() / TEMPERATURE
    if way == "together":
        out = logits.compute(labels, entropy=True)
        assert out.logprobs is not None
        assert out.entropy is not None
        return out.logprobs, out.entropy
    if way == "apart":
        return logits.log_probs(labels), logits.entropy()
    half = labels.shape[1] // 2
    pieces = [torch.cat([row[:half], row[half:]]) for row in logits]
    parts = [piece.compute(own, entropy=True) for piece, own in zip(pieces, labels, strict=True)]
    return torch.stack([part.logprobs for part in parts]), torch.stack([part.entropy for part in parts])


def through_lazy_logits(model: Any, inputs: dict[str, Any], way: str) -> Result:
    model.zero_grad()
    given = {name: value for name, value in inputs.items() if name != "labels"}
    with attach(model, DeferredHead()):
        logits = model(**given)
    assert isinstance(logits, LazyLogits)
    log_probs, entropy = asked(logits, inputs["labels"], way)
    loss = weighted(log_probs, entropy)
    torch.autograd.backward(loss)
    return Result(log_probs.detach(), entropy.detach(), loss.detach(), gradients_of(model))


CASES = [
    Case(),
    Case(tp=2, sequence_parallel=True, tied=True),
    Case(packed=True, batch=3),
    Case(hybrid=True, tp=2),
    Case(tied=True, mup=True),
    Case(tp=2),
    Case(dtype=torch.bfloat16),
    Case(dtype=torch.bfloat16, head_dtype=torch.float32),
    Case(cp=2),
    Case(packed=True, batch=3, cp=2, tp=2, sequence_parallel=True),
]


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=4), ids=str)
@on_ranks
def test_what_is_asked_of_lazy_logits_is_what_the_default_logits_give(case: Case, model: Any, inputs: Any) -> None:
    truth = default_path(in_float64(case, model), inputs, inputs["labels"], TEMPERATURE, weighted)
    default = default_path(with_a_default_path(case, model), inputs, inputs["labels"], TEMPERATURE, weighted)
    for way in WAYS:
        assert_no_worse(through_lazy_logits(model, inputs, way), default, truth, lowest_dtype(case))


@pytest.mark.parametrize("fused", [False, True], ids=["through .grad", "fused into main_grad"])
@pytest.mark.parametrize("case", [Case(dtype=torch.bfloat16), Case(dtype=torch.bfloat16, tp=2, tied=True)], ids=str)
@on_ranks
def test_float16_module_and_ddp_hand_them_through(case: Case, model: Any, inputs: Any, fused: bool) -> None:
    """Float16Module converts every output to fp32, and Megatron's DDP collects the gradients in `main_grad`."""
    plain = through_lazy_logits(model, inputs, "together")
    model.zero_grad()
    config, buffers = build_config(case), DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    wrapped = DistributedDataParallel(config, buffers, Float16Module(config, model))
    wrapped.zero_grad_buffer()
    model.output_layer.gradient_accumulation_fusion = fused  # after it was built, where the flag needs an extension
    labels = inputs.pop("labels")
    with attach(wrapped, DeferredHead()):
        logits = wrapped(**inputs)
    assert isinstance(logits, LazyLogits)
    log_probs, entropy = asked(logits, labels, "apart")
    torch.autograd.backward(weighted(log_probs, entropy) + 0 * logits.sum() + 0 * logits[:, :1].logits().sum())
    assert_agree({"log_probs": log_probs.detach(), "entropy": entropy.detach()}, plain.values(), torch.bfloat16)
    gradients = {name: parameter.main_grad for name, parameter in model.named_parameters()}
    assert_agree(gradients, plain.gradients, torch.bfloat16)


@pytest.mark.parametrize("case", [Case(), Case(tp=2, sequence_parallel=True), Case(mup=True, tied=True)], ids=str)
@on_ranks
def test_every_other_result(case: Case, model: Any) -> None:
    """The other results, against the real logits in float64; the real logits, against Megatron's."""
    teacher = build_model(case)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(1.25)
    inputs = inputs_for(case)
    labels = inputs.pop("labels")
    default = model(**inputs)
    with attach(model, DeferredHead()), attach(teacher, DeferredHead()):
        logits, other = model(**inputs), teacher(**inputs).detach()
    assert logits.shape == default.shape
    assert torch.equal(logits.logits(), default)
    cancelled = (default.abs().sum() / default.sum().abs()).item()
    for ours, theirs in ((logits.sum(), default.sum()), (logits.mean(), default.mean())):
        assert_agree({"sum": ours.detach()}, {"sum": theirs.detach()}, peak=cancelled)

    group = parallel_state.get_tensor_model_parallel_group()

    def whole(shard: Tensor) -> Tensor:
        parts = [torch.empty_like(shard) for _ in range(group.size())]
        torch.distributed.all_gather(parts, shard.detach().contiguous(), group=group)
        return torch.cat(parts, -1)

    ids = torch.stack([labels, labels.flip(0)], -1)
    top, stats = logits.top_k(3), logits.logit_stats()
    real, others = whole(default), whole(other.logits())
    assert torch.equal(top.topk_ids, real.topk(3).indices)

    def from_logits(mine: Tensor, theirs: Tensor) -> dict[str, Tensor]:
        p, q = mine.log_softmax(-1), theirs.log_softmax(-1)
        return {
            "top": mine.topk(3).values,
            "logsumexp": mine.logsumexp(-1),
            "at": p.gather(-1, ids),
            "squares": (2 * p).exp().sum(-1),
            "forward": (q.exp() * (q - p)).sum(-1),
            "reverse": (p.exp() * (p - q)).sum(-1),
            "minimum": mine.amin(-1),
            "norm": mine.norm(dim=-1),
        }

    found = {
        "top": top.topk_logits,
        "logsumexp": top.logsumexp,
        "at": logits.log_probs_at(ids),
        "squares": logits.sum_pi_squared(),
        "forward": logits.kl(other),
        "reverse": logits.kl(other, kind="reverse"),
        "minimum": stats.logit_min,
        "norm": stats.logit_norm,
    }
    truth = from_logits(real.double(), others.double())
    assert_agree({name: value.detach() for name, value in found.items()}, truth, plain=from_logits(real, others))


@pytest.mark.parametrize("case", [Case(), Case(tp=2), Case(tp=2, sequence_parallel=True, tied=True)], ids=str)
@on_ranks
def test_gradients_of_every_other_result(case: Case, model: Any, inputs: Any) -> None:
    """Each result's gradients are those of the real logits that the same object gives, which are Megatron's own."""
    labels = inputs.pop("labels")
    ids = torch.stack([labels, labels.flip(0)], -1)
    group = parallel_state.get_tensor_model_parallel_group()

    def gradients(loss_of: Any) -> dict[str, Tensor]:
        model.zero_grad()
        with attach(model, DeferredHead()):
            logits = model(**inputs)
        torch.autograd.backward(loss_of(logits / TEMPERATURE))
        return gradients_of(model)

    def of_whole(loss_of: Any) -> Any:
        from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

        return lambda logits: loss_of(gather_from_tensor_model_parallel_region(logits.logits(), group=group))

    pairs = [
        (lambda z: z.log_probs_at(ids).sin().sum(), lambda z: z.log_softmax(-1).gather(-1, ids).sin().sum()),
        (lambda z: z.sum_pi_squared().sin().sum(), lambda z: z.softmax(-1).square().sum(-1).sin().sum()),
        (lambda z: z.top_k(3).topk_logits.sin().sum(), lambda z: z.topk(3).values.sin().sum()),
    ]
    for ours, theirs in pairs:
        assert_agree(gradients(ours), gradients(of_whole(theirs)))
    model.zero_grad()
    assert_agree(gradients(lambda z: z.sum()), gradients(lambda z: z.logits().sum()))


@on_ranks(Case(mtp=1))
def test_a_call_with_labels_returns_the_loss(model: Any, inputs: Any) -> None:
    default = model(**inputs)
    with attach(model, DeferredHead()):
        assert_agree({"loss": model(**inputs)}, {"loss": default})


@on_ranks
def test_options_and_context(model: Any, inputs: Any) -> None:
    labels = inputs.pop("labels")
    per_token = torch.linspace(0.5, 2.0, labels.numel()).view(labels.shape)
    plain = call_with_processor(model, DeferredHead(), **inputs)
    expected = {"number": (plain / 0.7).log_probs(labels), "tensor": (plain / per_token[..., None]).log_probs(labels)}
    for name, temperature in (("number", 0.7), ("tensor", per_token)):
        of_option = call_with_processor(model, DeferredHead(temperature=temperature), **inputs)
        of_context = call_with_processor(
            model, DeferredHead(temperature=3.0), context={"temperature": temperature}, **inputs
        )
        for found in (of_option, of_context):
            assert torch.equal(found.log_probs(labels), expected[name])
    with torch.no_grad():
        without = call_with_processor(model, DeferredHead(), **inputs)
    assert not without.entropy().requires_grad  # as of logits that were made without a graph
    cut = call_with_processor(model, DeferredHead(vocab_size=40), **inputs)
    assert (cut.top_k(8).topk_ids < 40).all()
    for name in ("labels", "mask", "mask_count", "lengths", "keep_mask", "token_ids", "teacher"):
        with pytest.raises(TypeError, match=f"'{name}' has no effect on DeferredHead"):
            call_with_processor(model, DeferredHead(), context={name: labels}, **inputs)
    with attach(model, DeferredHead()):
        attach(model, DeferredHead())  # the same
        with pytest.raises(AttachmentError):
            attach(model, DeferredHead(backend="torch"))
