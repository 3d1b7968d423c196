"""On a GPU: the hook without a wait, in a graph and in a plan; Megatron's FSDP, its fused accumulation, offloading."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from harness.files import from_page
from harness.gpu import CASE, batch_on_gpu, gpt_on_gpu, needs_gpu
from harness.models import batch_of, build_config, build_model
from harness.packing import Packer
from harness.rounding import assert_agree
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.utils import set_streams
from megatron.core.transformer.module import Float16Module
from torch import Tensor

from mcore_unpatch.compat import (
    HeadInputs,
    HookMissingError,
    LogProbsAndEntropy,
    TokenLoss,
    attach,
    schedule_plan_with_processor,
)


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
    params = packer.packed_seq_params(device)
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


needs_apex = pytest.mark.skipif(
    find_spec("fused_weight_gradient_mlp_cuda") is None, reason="needs Apex' fused_weight_gradient_mlp_cuda"
)
needs_einops = pytest.mark.skipif(find_spec("einops") is None, reason="Megatron's FSDP needs einops, and a GPU")


@needs_gpu
@needs_einops
@pytest.mark.parametrize("strategy", ["no_shard", "optim_grads", "optim_grads_params"])
def test_megatron_fsdp_gives_the_same_losses_and_gradients(world: None, strategy: str) -> None:
    """The default path and the hook under the same wrapper; what the wrapper keeps of the gradients is compared."""
    results = []
    for hooked in (False, True):
        config, model = gpt_on_gpu()
        ddp_config = DistributedDataParallelConfig(
            use_distributed_optimizer=True, use_megatron_fsdp=True, data_parallel_sharding_strategy=strategy
        )
        wrapped = FullyShardedDataParallel(config, ddp_config, model)
        handle = attach(wrapped, TokenLoss()) if hooked else None
        loss = wrapped(**batch_on_gpu())
        torch.autograd.backward(loss.mean())
        wrapped.finish_grad_sync()
        if handle is not None:
            handle.remove()
        found = {"loss": loss.detach()}
        for name, parameter in wrapped.named_parameters():
            gradient = parameter.grad if getattr(parameter, "main_grad", None) is None else parameter.main_grad
            if gradient is not None:
                found[name] = getattr(gradient, "_local_tensor", gradient).detach().clone()
        results.append(found)
    default, ours = results
    assert len(default) > 2
    assert_agree(ours, default)


@needs_gpu
@needs_apex
def test_head_inputs_beside_the_real_fused_accumulation(world: None) -> None:
    """What `test_fused_accumulation.py` shows with a stand-in for the CUDA extension."""
    results = []
    for fused in (False, True):
        config, model = gpt_on_gpu(gradient_accumulation_fusion=fused)
        model.output_layer.gradient_accumulation_fusion = fused
        wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
        torch.autograd.backward(wrapped(**batch_on_gpu()).mean())
        processor = HeadInputs()
        with attach(wrapped, processor):
            hidden = wrapped(**{**batch_on_gpu(), "labels": None})
        assert processor.weight is not None
        torch.autograd.backward((hidden @ processor.weight.T).square().mean())
        results.append({name: parameter.main_grad.clone() for name, parameter in model.named_parameters()})
    assert_agree(results[1], results[0])


STEPS, TRIP = 4, 2


def _trained(dtype: torch.dtype, distributed: bool, *, trip: bool, weights: bool) -> tuple[list[Tensor], list[int]]:
    """The weights after some steps of Adam, and the bytes in use before, during and after the trip to the CPU."""
    torch.manual_seed(1)
    bf16, config = dtype is torch.bfloat16, build_config(CASE)
    config.bf16, config.params_dtype = bf16, dtype
    model: Any = build_model(CASE).cuda()
    model = Float16Module(config, model) if bf16 else model
    chunk = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=distributed, overlap_grad_reduce=False), model
    )
    settings = {"bf16": bf16, "params_dtype": dtype, "use_distributed_optimizer": distributed, "clip_grad": 1.0}
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2, **settings), [chunk])
    used = []
    for step in range(STEPS):
        if trip and step == TRIP:
            used.append(torch.cuda.memory_allocated())
            from_page("recipes.md", "offload")([chunk], optimizer, weights=weights)
            used.append(torch.cuda.memory_allocated())
            from_page("recipes.md", "restore")([chunk], optimizer, weights=weights)
            used.append(torch.cuda.memory_allocated())
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        batch = {name: value.cuda() for name, value in batch_of(CASE, step).items()}
        call = {name: batch[name] for name in ("input_ids", "position_ids", "labels")}
        chunk(**call, attention_mask=None).mean().backward()
        finalize_model_grads([chunk])
        optimizer.step()
    return [one.detach().float().cpu() for one in chunk.parameters()], used


@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "distributed"), [(torch.bfloat16, True), (torch.float32, True), (torch.bfloat16, False)]
)
def test_training_goes_on_as_if_nothing_had_moved(world: None, dtype: torch.dtype, distributed: bool) -> None:
    expected, _ = _trained(dtype, distributed, trip=False, weights=False)
    for weights in (False, True) if distributed else (False,):
        found, (before, during, _) = _trained(dtype, distributed, trip=True, weights=weights)
        assert during < before
        assert all(map(torch.equal, found, expected))
