"""Run by itself: the models of a Megatron-Bridge tree that hand a caller's hook on, on the first Megatron of the path.

Prints for each model whether the hook was called, with what, and what came back. The packages' `__init__` files are
left out. Stand-ins: a class for Transformer Engine's attention, which needs CUDA, and what comes from transformers: the
towers for images and sound, which text never reaches.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from engine_mtp import each
from megatron.core.extensions import transformer_engine
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

MODELS = "megatron.bridge.models"
EXAONE = f"{MODELS}.exaone.exaone45.modelling_exaone45"
THINKERS = {
    "Qwen3ASR": f"{MODELS}.qwen3_asr.modeling_qwen3_asr",
    "Qwen25Omni": f"{MODELS}.qwen_omni.modeling_qwen25_omni",
    "Qwen3Omni": f"{MODELS}.qwen_omni.modeling_qwen3_omni",
}
FOREIGN = ("transformers", "einops", f"{MODELS}.qwen3_asr.hf_qwen3_asr")
VOCAB = 32


class Tower(torch.nn.Module):
    """In place of any class of transformers."""

    @classmethod
    def _from_config(cls, config: Any) -> Tower:
        return cls()


class StandIns:
    """Modules of packages that need not be installed."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.startswith(FOREIGN) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: type(name, (Tower,), {})  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None: ...


def packages_of(root: Path) -> None:
    """`megatron.bridge` with nothing of what its `__init__` files import."""
    for folder in (root, *(one for one in root.rglob("*") if one.is_dir())):
        name = ".".join(("megatron.bridge", *folder.relative_to(root).parts))
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = [str(folder)]


def built(name: str) -> Any:
    torch.manual_seed(1)
    model_parallel_cuda_manual_seed(1)
    home = THINKERS.get(name, EXAONE)
    module = importlib.import_module(f"{home}.transformer_config")
    config_class = next(value for key, value in vars(module).items() if key.startswith(name) and "Config" in key)
    config = config_class(
        num_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        vocab_size=VOCAB,
        language_max_sequence_length=16,
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        **({"mrope_section": [2, 1, 1]} if name in THINKERS else {}),
    )
    spec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm)
    groups = ProcessGroupCollection.use_mpu_process_groups()
    if name in THINKERS:
        towers = SimpleNamespace(spatial_merge_size=2)
        thinker = getattr(importlib.import_module(f"{home}.thinker_model"), f"{name}ThinkerModel")
        return thinker(config, spec, SimpleNamespace(vision_config=towers, audio_config=None), pg_collection=groups)
    model = importlib.import_module(f"{home}.text_model").Exaone45GPTModel
    return model(config, spec, VOCAB, 16, position_embedding_type="rope", pg_collection=groups)


def said(name: str) -> dict[str, Any]:
    """What the model returns without a hook, and what it does with one."""
    model = built(name)
    ids = torch.arange(8).reshape(1, 8)
    call: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones(1, 1, 8, 8).triu(1).bool()}
    call["position_ids"] = ids.expand(3, 1, 8) if name in THINKERS else ids
    plain = model(**call)
    context, calls = object(), []

    def processor(**given: Any) -> Any:
        calls.append(given)
        return given["output_layer"](given["hidden_states"], weight=given["output_weight"])[0].sum(-1)

    try:
        with_hook = model(**call, output_processor=processor, output_processor_context=context)
    except TypeError as error:
        return {"logits": list(plain.shape), "error": str(error)}
    told: dict[str, Any] = {"logits": list(plain.shape), "hook": list(with_hook.shape), "calls": len(calls)}
    if calls:
        told["context"] = calls[0]["context"] is context
        told["same"] = torch.equal(with_hook, plain.transpose(0, 1).sum(-1))  # to every bit
    else:
        told["ignored"] = torch.equal(with_hook, plain)
    return told


def run(tree: Path, _: str) -> dict[str, Any]:
    packages_of(tree)
    return {name: said(name) for name in ("Exaone45", *THINKERS)}


if __name__ == "__main__":
    sys.meta_path.insert(0, StandIns())  # type: ignore[arg-type]
    transformer_engine.TEDotProductAttention = type("TEDotProductAttention", (), {})
    each(run)
