"""Run by itself with a megatron-core from before the hook: every way in, every shim named, and what each says."""

import json
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from harness.cpu import on_the_cpu
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

from mcore_unpatch.compat import (
    HookMissingError,
    LogProbs,
    attach,
    call_with_processor,
    provide_hook,
    schedule_plan_with_processor,
)


def _said(action: Callable[[], Any]) -> str:
    try:
        action()
    except (HookMissingError, ImportError) as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, on_the_cpu():
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        config = TransformerConfig(
            num_layers=1,
            hidden_size=16,
            num_attention_heads=2,
            use_cpu_initialization=True,
            gradient_accumulation_fusion=False,
            masked_softmax_fusion=False,
            persist_layer_norm=False,
        )
        model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=32, max_sequence_length=16)
        ways = {
            "attach": lambda: attach(model, LogProbs()),
            "call": lambda: call_with_processor(model, LogProbs(), input_ids=None),
            "provide": lambda: provide_hook(model),
            "plan": lambda: schedule_plan_with_processor(model, LogProbs()),
        }
        shims = {name: _said(lambda name=name: import_module(name)) for name in sys.argv[1:]}
        print(json.dumps(shims | {name: _said(way) for name, way in ways.items()}))
        torch.distributed.destroy_process_group()
