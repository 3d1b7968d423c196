"""Run by itself: `patch_engine_mtp` of a veRL tree on a real model, on whichever Megatron is first on the path.

Prints which functions run, the error where there is one, and digests of the results and of every gradient. Stand-ins as
in tests/compat/downstream/verl.py: what of veRL the function does not need. `--alone` hides mcore_unpatch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import logging
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from harness.cpu import on_the_cpu
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor


def function_of(tree: Path, file: str, name: str) -> Any:
    """A function of a file, compiled from its own text, and nothing else of that file."""
    text = (tree / file).read_text()
    node = next(one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == name)
    space: dict[str, Any] = {"logger": logging.getLogger(name), "print": lambda *_: None}
    exec(compile(ast.Module([node], []), file, "exec"), space)
    return space[name]


def packages_of(tree: Path) -> None:
    """`verl.models.mcore` of a tree, with nothing of what its `__init__` imports."""
    from megatron.core.utils import unwrap_model

    for name in ("verl", "verl.models", "verl.models.mcore", "verl.utils"):
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = [str(tree / name.replace(".", "/"))]
    helper = sys.modules["verl.utils.megatron_utils"] = ModuleType("verl.utils.megatron_utils")
    helper.unwrap_model = unwrap_model  # type: ignore[attr-defined]


def build(recompute: bool) -> tuple[Any, dict[str, Tensor]]:
    """A model with MTP, and one batch."""
    torch.manual_seed(1)
    model_parallel_cuda_manual_seed(1)
    whole = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    config = TransformerConfig(
        num_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        mtp_num_layers=2,
        mtp_loss_scaling_factor=0.3,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        **(whole if recompute else {}),
    )
    spec = get_gpt_layer_local_spec()
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)
    model = GPTModel(
        config, spec, vocab_size=32, max_sequence_length=16, mtp_block_spec=mtp, position_embedding_type="rope"
    )
    ids = torch.randint(0, 32, (2, 16))
    positions = torch.arange(16).expand(2, 16)
    mask = torch.triu(torch.ones(16, 16), 1).bool()[None, None]
    batch = {"input_ids": ids, "position_ids": positions, "attention_mask": mask, "labels": ids.roll(-1, 1)}
    return model, batch | {"loss_mask": torch.ones(2, 16)}


def digest(value: Tensor) -> str:
    return hashlib.sha256(value.detach().double().numpy().tobytes()).hexdigest()[:16]


def said(tree: Path, recompute: bool, detach: bool) -> dict[str, Any]:
    """What comes of one forward and backward."""
    model, batch = build(recompute)
    model.train()
    settings = SimpleNamespace(mtp=SimpleNamespace(detach_encoder=detach))
    patch = function_of(tree, "verl/utils/megatron_utils.py", "patch_engine_mtp")
    done: dict[str, Any] = {"legacy": False}
    patch([model], settings)
    done["legacy"] = "_postprocess" in vars(model)
    asked: list[str] = []
    processor = {}
    try:
        output = model(**batch)
        output.sum().backward()
    except TypeError as error:
        return done | {"error": str(error)}
    tensors = {"output": output, **{name: value.grad for name, value in model.named_parameters()}}
    done["digests"] = {name: digest(value) for name, value in tensors.items() if value is not None}
    if "output_processor" in _parameters():
        processor = {"output_processor": lambda **given: asked.append("called") or given["hidden_states"]}
        model(**{**batch, "labels": None}, **processor)
        done["processor"] = bool(asked)
    return done


def _parameters() -> Any:
    import inspect

    return inspect.signature(GPTModel.forward).parameters


if __name__ == "__main__":
    tree, *flags = sys.argv[1:]
    if "--alone" in flags:
        sys.modules["mcore_unpatch"] = None  # type: ignore[assignment]
    logging.disable()
    with tempfile.TemporaryDirectory() as folder, on_the_cpu():
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        packages_of(Path(tree))
        importlib.import_module("verl.models.mcore.mtp_patch")
        told = {
            f"{'recompute' if recompute else 'plain'} {'detached' if detach else 'whole'}": said(
                Path(tree), recompute, detach
            )
            for recompute in (False, True)
            for detach in (False, True)
        }
        print(json.dumps(told))
        torch.distributed.destroy_process_group()
