"""On a GPU: the hook without a wait for the device, and in Megatron's schedule plan. Skipped where there is none."""

from typing import Any

import pytest
import torch
from harness.gpu import CASE, batch_on_gpu, gpt_on_gpu, needs_gpu
from harness.models import batch_of
from harness.packing import Packer
from megatron.core.pipeline_parallel.utils import set_streams
from torch import Tensor

from mcore_unpatch.compat import HookMissingError, LogProbsAndEntropy, attach, schedule_plan_with_processor


class CapturableAttention(torch.nn.Module):
    """Causal attention that copies nothing from the host."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        heads = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # [b, heads, s, d]
        out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return out.permute(2, 0, 1, 3).flatten(2)


@needs_gpu
@pytest.mark.parametrize("labelled", [False, True])
def test_the_hook_never_waits_for_the_device(world: None, labelled: bool) -> None:
    """Not for the model's own tokens, and not for labels with a bound."""
    (_, model), device = gpt_on_gpu(), torch.device("cuda")
    packer = Packer(torch.ones(2, 32))
    params = packer.packed_seq_params()
    tokens = batch_of(CASE)["input_ids"].to(device).view(1, -1)
    seen: dict[str, Any] = {}
    model(tokens, tokens, None, packed_seq_params=params, output_processor=lambda **keywords: seen.update(keywords))
    processor = LogProbsAndEntropy(shift="aligned" if labelled else "next_token", temperature=0.7)
    if labelled:
        labels = tokens.masked_fill(torch.arange(64, device=device) % 4 > 0, -100)
        seen |= {"labels": labels, "context": {"max_rows": 16}}
    processor(**seen)  # compile and cache
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = processor(**seen)
        torch.autograd.backward(out.log_probs.sum() + out.entropy.sum())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out.log_probs.shape == (1, 64)


@needs_gpu
def test_the_output_stage_of_a_schedule_plan_gives_what_the_plain_forward_gives(world: None) -> None:
    (_, model), batch = gpt_on_gpu(experts=4), batch_on_gpu()
    seen: dict[str, Any] = {}

    def processor(**keywords: Any) -> Any:
        seen.update(keywords)
        return LogProbsAndEntropy()(**keywords)

    with attach(model, processor):
        plain = model(**batch)
    weights = [torch.rand_like(one) for one in plain.values()]
    hidden = seen["hidden_states"]
    (expected,) = torch.autograd.grad(tuple(plain.values()), hidden, weights)
    set_streams()
    plan = schedule_plan_with_processor(model, LogProbsAndEntropy(), **batch)
    plan.record_current_stream()
    plan.pre_process.forward()
    out = plan.post_process.forward(hidden.detach().requires_grad_())
    assert isinstance(out, tuple)
    torch.testing.assert_close(out, tuple(plain.values()))
    torch.testing.assert_close(plan.post_process.backward(tuple(weights)), expected)


def test_a_model_without_plans_is_named() -> None:
    class Plain(torch.nn.Module):
        pass

    with pytest.raises(HookMissingError, match="no Megatron language model"):
        schedule_plan_with_processor(Plain(), LogProbsAndEntropy())


@needs_gpu
@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
def test_forward_and_backward_in_a_cuda_graph(world: None, keep_bytes: int) -> None:
    model, batch = gpt_on_gpu(CapturableAttention)[1].bfloat16(), batch_on_gpu()

    def step() -> Tensor:
        out = model(**batch, output_processor=LogProbsAndEntropy(keep_bytes=keep_bytes))
        torch.autograd.backward(out.log_probs.sum() + out.entropy.sum())
        result: Tensor = out.log_probs.detach()
        return result

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    graph.replay()
    replayed = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    logprobs = captured.clone()
    model.zero_grad(set_to_none=True)
    assert torch.equal(step(), logprobs)
    assert all(torch.equal(parameter.grad, replayed[name]) for name, parameter in model.named_parameters())
