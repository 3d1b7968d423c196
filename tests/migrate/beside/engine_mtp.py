"""Run by itself: what a veRL tree does to a real model with MTP, on whichever Megatron is first on the path.

`patch_engine_mtp`, and the two blocks of the engine that patch as well, each compiled from its own text. Prints which
functions run, the error where there is one, and digests of the results and of every gradient. Stand-ins as in
tests/compat/downstream/verl.py: what of veRL these do not need.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from harness.cpu import on_the_cpu
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.package_info import __version__
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


def block_of(tree: Path, test: str, body: str) -> ast.If:
    """The `if` of the engine that asks for one thing and does another."""
    text = (tree / "verl/workers/engine/megatron/transformer_impl.py").read_text()
    ifs = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If))
    return next(node for node in ifs if test in ast.unparse(node.test) and body in ast.unparse(node.body[0]))


def packages_of(tree: Path) -> None:
    """`verl.models.mcore` of a tree, with nothing of what its `__init__` imports."""
    from megatron.core.utils import unwrap_model

    for name in ("verl", "verl.models", "verl.models.mcore", "verl.utils"):
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = [str(tree / name.replace(".", "/"))]
    helper = sys.modules["verl.utils.megatron_utils"] = ModuleType("verl.utils.megatron_utils")
    helper.unwrap_model = unwrap_model  # type: ignore[attr-defined]


def each(run: Callable[[Path, str], dict[str, Any]]) -> None:
    """Print what comes of each argument, `TREE` or `TREE,flag`, in a process of its own that has all imports already.

    The flag `alone` is how it is where mcore_unpatch is not installed.
    """
    logging.disable()
    for argument in sys.argv[1:]:
        tree, _, flag = argument.partition(",")
        if os.fork():
            if os.wait()[1]:
                sys.exit(1)
            continue
        if flag == "alone":
            sys.modules["mcore_unpatch"] = None  # type: ignore[assignment]
        with tempfile.TemporaryDirectory() as folder, on_the_cpu():
            torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            parallel_state.initialize_model_parallel()
            print(json.dumps(run(Path(tree), flag)), flush=True)
            torch.distributed.destroy_process_group()
        os._exit(0)


def build(recompute: bool, depth: int | None = 2) -> tuple[Any, dict[str, Tensor]]:
    """A model with MTP, and one batch."""
    torch.manual_seed(1)
    model_parallel_cuda_manual_seed(1)
    whole = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    config = TransformerConfig(
        num_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        mtp_num_layers=depth,
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
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if depth else None
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


def without_training(tree: Path) -> dict[str, Any]:
    """What a model gives that the engine patches for log-probs alone; it has no MTP layers."""
    model, batch = build(recompute=False, depth=None)
    body = block_of(tree, "forward_only", "patch_postprocess").body
    space = {"self": SimpleNamespace(module=[model])}
    exec(compile(ast.Module(body, []), "transformer_impl.py", "exec"), space)
    logits = model(**batch)
    return {"legacy": "_postprocess" in vars(model), "digests": {"logits": digest(logits)}, "shape": list(logits.shape)}


def without_layers(tree: Path) -> dict[str, Any]:
    """What the engine does where an NPU is, and a model gives whose configuration has 0 MTP layers."""
    own = GPTModel._postprocess
    node = block_of(tree, "is_npu_available", "apply_mtp_inference_patch")
    space = {"is_npu_available": True, "__version__": __version__}
    try:
        exec(compile(ast.Module([node], []), "transformer_impl.py", "exec"), space)
        done: dict[str, Any] = {"legacy": GPTModel._postprocess is not own}
        model, batch = build(recompute=False, depth=0)
        loss = model(**batch)
        loss.sum().backward()
        tensors = {"loss": loss, **{name: value.grad for name, value in model.named_parameters()}}
        return done | {"digests": {name: digest(value) for name, value in tensors.items() if value is not None}}
    finally:
        GPTModel._postprocess = own


def _parameters() -> Any:
    import inspect

    return inspect.signature(GPTModel.forward).parameters


def run(tree: Path, _: str) -> dict[str, Any]:
    packages_of(tree)
    importlib.import_module("verl.models.mcore.mtp_patch")
    told = {
        f"{'recompute' if recompute else 'plain'} {'detached' if detach else 'whole'}": said(tree, recompute, detach)
        for recompute in (False, True)
        for detach in (False, True)
    }
    return told | {"forward only": without_training(tree), "no layers": without_layers(tree)}


if __name__ == "__main__":
    each(run)
