"""What the tests on a GPU share: one rank, one small case."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch.distributed import ProcessGroup

from harness.attention import CpuAttention, Norm
from harness.models import Case, batch_of, build_config

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CASE = Case(hidden=64, vocab=512, batch=2, sequence=32)


@contextmanager
def one_rank(folder: Path) -> Iterator[ProcessGroup]:
    """A world of one rank on the GPU."""
    torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def gpt_on_gpu(attention: Any = CpuAttention, experts: int | None = None, **options: Any) -> tuple[Any, Any]:
    """The configuration of `CASE`, with these options, and a GPTModel of it."""
    torch.manual_seed(99)
    config = build_config(CASE)
    if experts:
        options |= {"num_moe_experts": experts, "moe_token_dispatcher_type": "alltoall", "moe_router_topk": 2}
        options |= {"moe_ffn_hidden_size": 2 * CASE.hidden}
    for name, value in options.items():
        setattr(config, name, value)
    spec = get_gpt_layer_local_spec(num_experts=experts)
    spec.submodules.self_attention.submodules.core_attention = attention
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    block = TransformerBlockSubmodules(layer_specs=[spec] * config.num_layers, layer_norm=Norm)
    model = GPTModel(config, block, CASE.vocab, CASE.sequence, position_embedding_type="rope")
    return config, model.cuda()


def batch_on_gpu(seed: int = 0) -> dict[str, Any]:
    return {**{name: value.cuda() for name, value in batch_of(CASE, seed).items()}, "attention_mask": None}
