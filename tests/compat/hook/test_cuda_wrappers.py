"""On a GPU: Megatron's own FSDP, and real gradient accumulation fusion. Skipped where there is none."""

from importlib.util import find_spec

import pytest
import torch
from harness.gpu import batch_on_gpu, gpt_on_gpu, needs_gpu
from harness.rounding import assert_agree
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel

from mcore_unpatch.compat import HeadInputs, TokenLoss, attach

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
