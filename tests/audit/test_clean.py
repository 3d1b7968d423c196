"""Megatron alone is never reported: every module imported, models built and run, our replacements in place."""

from typing import Any

import pytest
from programs import RELEASES, in_forks

EVERYTHING = """
    import importlib, megatron, pkgutil
    for module in pkgutil.walk_packages(megatron.__path__, "megatron."):
        try:
            importlib.import_module(module.name)
        except Exception:
            pass
    from mcore_unpatch.audit.names import loaded_modules
    report = audit.audit()
    said = [str(report), len(loaded_modules()), "megatron.training.checkpointing" in loaded_modules()]
"""
MODELS = """
    world()
    said = []
    gpt = [Setting("gpt"), Setting("tied", tied=True), Setting("mtp", mtp=True)]
    for setting in (*gpt, Setting("hybrid", hybrid=True)):
        model = build(setting)
        model(**batch(setting, 0))
        said.append(str(audit.audit(model, files=False)))
"""
REPLACEMENTS = """
    from megatron.core.transformer.module import Float16Module
    from mcore_unpatch.compat import LogProbs, add_value_head, attach, provide_hook
    from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward
    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
    world()
    said = []
    for setting in (Setting("gpt", dtype="bfloat16"), Setting("hybrid", hybrid=True, dtype="bfloat16")):
        model = build(setting)
        wrapped = Float16Module(model.config, model)
        attach(wrapped, LogProbs())
        wrapped(**batch(setting, 0))
        said.append(audit.audit([wrapped, wrapped], files=False).to_json())
    patch_fused_forward(build(Setting("gpt")))
    model = build(Setting("mtp", mtp=True))
    patch_postprocess(model)
    critic = build(Setting("gpt"))
    add_value_head(critic)
    said.append(audit.audit([model, critic], files=False).to_json())
"""
COMPILED = """
    world()
    setting = Setting("gpt")
    model = torch.compile(build(setting), backend="eager")
    model(**batch(setting, 0))
    inner = build(setting)
    inner.compile(backend="eager")
    inner.decoder.layers[0].forward = torch.compile(inner.decoder.layers[0].forward, backend="eager")
    inner(**batch(setting, 0))
    said = str(audit.audit([model, inner], files=False))
"""
PROGRAMS = {"everything": EVERYTHING, "models": MODELS, "replacements": REPLACEMENTS}


@pytest.fixture(scope="module", params=RELEASES)
def clean(request: pytest.FixtureRequest, processes: None) -> tuple[str, dict[str, Any]]:
    return request.param, in_forks(request.param, PROGRAMS)


def test_every_module_of_a_release_is_what_its_file_says(clean: tuple[str, dict[str, Any]]) -> None:
    release, answers = clean
    text, modules, training = answers["everything"]
    assert text.startswith(f"megatron-core {release} is what it says on ")
    assert "\n" not in text
    assert modules > 400
    assert training


def test_models_that_ran(clean: tuple[str, dict[str, Any]]) -> None:
    release, answers = clean
    assert len(answers["models"]) == 4
    assert all(text.startswith(f"megatron-core {release} is what it says") for text in answers["models"])


def test_our_replacements_are_hooks_and_no_patches(clean: tuple[str, dict[str, Any]]) -> None:
    for report in clean[1]["replacements"]:
        assert report["deviations"] == []
        assert report["hooks"]
        assert {hook["by"]["package"] for hook in report["hooks"]} == {"mcore_unpatch"}


def test_torch_compile(processes: None) -> None:
    """With one release: it is torch that is asked."""
    assert "is what it says" in in_forks(RELEASES[-1], {"compiled": COMPILED})["compiled"]
