"""Real third parties in real processes: each of their patches is named, with their file and line.

Only what cannot be installed or run here is stood in for: veRL's device helpers and kernel.
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
