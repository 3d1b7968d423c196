"""Run by itself: the linear CE fusion of a NeMo RL tree on a real model, on whichever Megatron is first on the path.

The import is that statement of its `setup.py`, as it stands. A file as the flag installs nothing: its function, put
into `model_utils.py`, is the hook. Prints whose function runs, digests of every tensor, and the values.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from engine_mtp import build, digest, each

PATCH = "patch_gpt_model_forward_for_linear_ce_fusion"
CHUNK = 5


def packages_of(tree: Path) -> None:
    """`nemo_rl` with nothing of what its `__init__` files import."""
    for folder in (tree / "nemo_rl", *(one for one in (tree / "nemo_rl").rglob("*") if one.is_dir())):
        name = ".".join(folder.relative_to(tree).parts)
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = [str(folder)]


def imported(tree: Path) -> Any:
    """What the import statement at the top of `setup.py` binds."""
    text = (tree / "nemo_rl/models/megatron/setup.py").read_text()
    kinds = (ast.ImportFrom, ast.Try)
    node = next(one for one in ast.parse(text).body if isinstance(one, kinds) and PATCH in ast.unparse(one))
    space: dict[str, Any] = {}
    exec(compile(ast.Module([node], []), "setup.py", "exec"), space)
    return space[PATCH]


def said(model: Any, call: dict[str, Any]) -> dict[str, Any]:
    """The log-probs and every gradient."""
    output = model(**call)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(3))
    (output * weights).sum().backward()
    tensors = {"output": output, **{name: value.grad for name, value in model.named_parameters()}}
    there = {name: value for name, value in tensors.items() if value is not None}
    return {
        "digests": {name: digest(value) for name, value in there.items()},
        "values": {name: value.detach().double().flatten().tolist() for name, value in there.items()},
    }


def run(tree: Path, flag: str) -> dict[str, Any]:
    packages_of(tree)
    utils = importlib.import_module("nemo_rl.distributed.model_utils")
    told: dict[str, Any] = {}
    recipe = flag.endswith(".py")
    if recipe:
        exec(Path(flag).read_text(), vars(utils))
        utils.linear_ce_fusion["chunk_size"] = CHUNK
    else:
        patch = imported(tree)
        told["from"] = patch.__module__
        patch(chunk_size=CHUNK)
    for case, depth in {"plain": None, "mtp": 2}.items():
        model, batch = build(recompute=False, depth=depth)
        model.train()
        ids = batch["input_ids"]
        call = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
        if recipe:
            call["output_processor"] = utils.linear_ce_fusion_output_processor
            call["output_processor_context"] = ids
        else:
            call |= {"labels": ids, "return_logprobs_for_linear_ce_fusion": True}
        told[case] = said(model, call)
    return told


if __name__ == "__main__":
    each(run)
