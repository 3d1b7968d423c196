"""Real third parties in real processes: each of their patches is named, with their file and line.

Only libraries that cannot be installed or run here are stood in for: veRL's device helpers and kernel, and what
mcore-bridge imports besides Megatron (transformers, peft and their like).
"""

import re
from pathlib import Path
from typing import Any

import pytest
from downloads import unpacked
from programs import in_forks

VERL = """
    import importlib, sys, types
    from types import SimpleNamespace
    def package(name, folder):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [folder]
    def stand_in(name, **values):
        vars(sys.modules.setdefault(name, types.ModuleType(name))).update(values)
    for name in ("verl", "verl.models", "verl.models.mcore", "verl.utils", "verl.utils.kernel"):
        package(name, "{folder}/" + name.replace(".", "/"))
    from megatron.core.utils import unwrap_model
    stand_in("verl.utils.megatron_utils", unwrap_model=unwrap_model)
    stand_in("verl.utils.model", CausalLMOutputForPPO=SimpleNamespace)
    stand_in("verl.utils.kernel.linear_cross_entropy", linear_cross_entropy=None)
    stand_in("verl.models.mcore.qwen2_5_vl.model", Qwen2_5VLModel=type(None))
    stand_in("verl.utils.device", is_npu_available=False, is_cuda_available=False, get_device_capability=None,
             get_device_name=lambda: "cpu", get_torch_device=lambda: torch.cpu)
    world()
    fused = importlib.import_module("verl.models.mcore.model_forward_fused")
    mtp = importlib.import_module("verl.models.mcore.mtp_patch")
    model = build(Setting("gpt"))
    fused.patch_fused_forward(model)
    second = build(Setting("mtp", mtp=True))
    for name in ("patch_postprocess", "patch_mtp_layer_get_embeddings"):
        getattr(mtp, name)(second)
    said = audit.audit([model, second], files=False).to_json()
    lost = audit.hook_works(second)
    said["hook"] = [lost.how, lost.at]
"""
LIGER = """
    from liger_kernel.megatron import apply_liger_kernel_to_megatron
    from megatron.core.models.common.language_module import language_module
    apply_liger_kernel_to_megatron(rms_norm=True, cross_entropy=True, swiglu=True)
    said = audit.audit(files=False).to_json()
"""
BRIDGE = """
    import importlib, sys, types
    from importlib.machinery import ModuleSpec
    from unittest.mock import MagicMock
    # Megatron is imported first, so that it sees no stand-in.
    from megatron.core.models.gpt.gpt_model import GPTModel
    import megatron.core.inference.contexts, megatron.core.extensions.transformer_engine
    class Absent:
        def find_spec(self, name, path=None, target=None):
            return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in {absent} else None
        def create_module(self, spec):
            module = MagicMock(name=spec.name)
            module.__path__, module.__spec__, module.__name__, module.__version__ = [], spec, spec.name, "9.0.0"
            return module
        def exec_module(self, module):
            pass
    sys.meta_path.append(Absent())
    # Its __init__ runs all patches, and the first need Transformer Engine.
    package = sys.modules["mcore_bridge"] = types.ModuleType("mcore_bridge")
    package.__path__ = ["{folder}/mcore_bridge"]
    patcher = importlib.import_module("mcore_bridge.patcher")
    for name in ("_patch_mrope", "_patch_mtp", "_patch_moe_expert_bias_padding_mask"):
        getattr(patcher, name)()
    said = audit.audit(files=False).to_json()
"""
LIBRARIES = (
    "peft", "transformers", "modelscope", "safetensors", "accelerate", "transformer_engine", "huggingface_hub",
    "datasets",
)  # fmt: skip


def patches(report: dict[str, Any], package: str) -> dict[str, str]:
    """What a package replaced: the name without `megatron.core.`, and the file and line of the replacement."""
    return {
        one["name"].removeprefix("megatron.core."): f"{Path(one['by']['file']).name}:{one['by']['line']}"
        for one in report["deviations"]
        if one["by"]["package"] == package and one["kind"] != "stale"
    }


def line_of(file: Path, pattern: str) -> str:
    lines = file.read_text().splitlines()
    return f"{file.name}:{next(n for n, line in enumerate(lines, 1) if re.match(pattern, line))}"


@pytest.mark.parametrize("version", ["0.8.0", "0.9.1"])
def test_verl(version: str, processes: None) -> None:
    folder = unpacked("verl", version)
    report = in_forks("0.19.2", {"verl": VERL.format(folder=folder)})["verl"]
    mcore = folder / "verl" / "models" / "mcore"
    seen = patches(report, "verl")
    assert seen["models.gpt.gpt_model.GPTModel._postprocess"] == line_of(
        mcore / "mtp_patch.py", "def _megatron_gptmodel_p"
    )
    embeddings = "transformer.multi_token_prediction.MultiTokenPredictionLayer._get_embeddings"
    assert seen[embeddings] == line_of(mcore / "mtp_patch.py", "def _patched_get_embeddings")
    forward = seen.get("models.gpt.gpt_model.GPTModel.forward")
    if version == "0.8.0":
        assert forward == line_of(mcore / "model_forward_fused.py", "def _fused_GPTModel_forward")
    else:  # uses the hook where there is one
        assert forward is None
    how, at = report["hook"]
    assert how in ("refuses", "ignores", "failed")
    assert how == "failed" or "verl" in at


def test_liger(processes: None) -> None:
    folder = unpacked("liger-kernel", "0.8.5")
    report = in_forks("0.19.2", {"liger": LIGER}, folder)["liger"]
    seen = patches(report, "liger_kernel")
    patcher = folder / "liger_kernel" / "megatron" / "monkey_patch.py"
    assert seen["models.backends.LocalSpecProvider.layer_norm"] == line_of(patcher, " *def patched_layer_norm")
    assert {
        "fusions.fused_cross_entropy.fused_vocab_parallel_cross_entropy",
        "tensor_parallel.cross_entropy.vocab_parallel_cross_entropy",
        "transformer.transformer_block.LayerNormImpl",
    } <= set(seen)
    assert all(one["by"]["package"] == "liger_kernel" for one in report["deviations"] if one["kind"] != "stale")


def test_mcore_bridge(processes: None) -> None:
    folder = unpacked("mcore-bridge", "1.6.5")
    report = in_forks("0.19.2", {"bridge": BRIDGE.format(absent=set(LIBRARIES), folder=folder)})["bridge"]
    seen = patches(report, "mcore_bridge")
    patcher = folder / "mcore_bridge" / "patcher.py"
    router = seen["transformer.moe.router.TopKRouter._apply_expert_bias"]
    assert router == line_of(patcher, " *def _apply_expert_bias")
    assert "models.common.embeddings.rope_utils.apply_rotary_pos_emb" in seen
    stale = [one["name"] for one in report["deviations"] if one["kind"] == "stale"]
    assert "megatron.core.models.common.embeddings.apply_rotary_pos_emb" in stale
