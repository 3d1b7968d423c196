"""Importing a shim where something is missing, replaced or switched off says what; the first call says what runs."""

import logging

import pytest
from downstream.importing import NEEDS_HOOK, SHIMS, said_by_imports

from mcore_unpatch.compat import requirements

ranks = pytest.mark.ranks


@ranks
@pytest.mark.parametrize("missing", ["torch", "megatron"])
def test_a_missing_package_is_named_with_the_extra(missing: str) -> None:
    known = "" if missing == "torch" else "import torch; "
    said = said_by_imports(SHIMS, f"{known}import sys; sys.modules[{missing!r}] = None")
    package = "megatron-core" if missing == "megatron" else missing
    how = "which is not installed; run `pip install 'mcore-unpatch[compat]'`."
    assert said == {name: f"ImportError: {name} needs {package}, {how}" for name in SHIMS}


def test_what_else_is_missing_is_not_blamed_on_the_extra() -> None:
    error = ModuleNotFoundError("No module named 'flask'", name="flask")
    with pytest.raises(ModuleNotFoundError, match="flask"):
        raise requirements.missing_from_extra("The shim", error)
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        raise requirements.missing_from_extra("The shim", ModuleNotFoundError("nothing"))


@ranks
def test_the_switch_brings_every_patch_back_and_its_package_imports_nothing() -> None:
    replacements = [*SHIMS, *NEEDS_HOOK, "mcore_unpatch.compat.hook.changed_heads"]
    off = said_by_imports([*replacements, "mcore_unpatch.compat.verl"], MCORE_UNPATCH="0")
    assert off.pop("mcore_unpatch.compat.verl") == "nothing"
    why = "is switched off by MCORE_UNPATCH=0 in the environment; unset it to use the replacement."
    assert off == {name: f"ImportError: {name} {why}" for name in replacements}
    some = said_by_imports(replacements, MCORE_UNPATCH_OFF="verl, mcore_unpatch.compat.skyrl")
    for name, text in some.items():
        switched_off = f"ImportError: {name} is switched off by MCORE_UNPATCH_OFF=verl, mcore_unpatch.compat.skyrl in "
        assert text.startswith(switched_off) if ".verl." in name or "skyrl" in name else text == "nothing"
    bare = "import sys; sys.modules |= dict.fromkeys(('torch', 'triton', 'megatron'))\n"
    assert said_by_imports(["mcore_unpatch.compat.verl"], bare) == {"mcore_unpatch.compat.verl": "nothing"}


_OF_A_DOWNSTREAM = """
import functools, torch
from megatron.core.models.gpt.gpt_model import GPTModel
theirs = GPTModel.forward
def forward(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):
    return theirs(self, input_ids, position_ids, attention_mask, labels=labels, **kwargs)
"""


@ranks
def test_a_class_patch_that_hides_the_hook_stays_what_runs() -> None:
    patched = f"{_OF_A_DOWNSTREAM}forward.__module__ = 'trainer.patches'\nGPTModel.forward = forward\n"
    said = said_by_imports([*SHIMS, *NEEDS_HOOK], patched)
    why = r"has no parameter output_processor (megatron-core "
    for name, text in said.items():
        assert text.startswith(
            f"ImportError: {name} needs Megatron's output_processor hook, but GPTModel.forward {why}"
        )
        assert text.endswith("); trainer.patches.forward has replaced it, and runs as before.")


@ranks
def test_a_patch_that_says_what_it_wraps_is_taken_at_its_word() -> None:
    wrapped = f"{_OF_A_DOWNSTREAM}GPTModel.forward = functools.wraps(theirs)(forward)\n"
    said = said_by_imports([*SHIMS, *NEEDS_HOOK], wrapped)
    assert set(said.values()) == {"nothing"}


@ranks
def test_a_class_patch_that_a_shim_would_refuse_later_is_refused_at_its_import() -> None:
    patched = _OF_A_DOWNSTREAM + "forward.__module__ = 'trainer.patches'\nGPTModel._postprocess = forward\n"
    said = said_by_imports([*SHIMS, *NEEDS_HOOK], patched)
    why = "refuses a patched GPTModel, and trainer.patches.forward has replaced Megatron's method."
    assert said == {name: f"ImportError: {name} {why}" if name in SHIMS else "nothing" for name in said}


def test_the_first_call_says_once_which_side_runs(caplog: pytest.LogCaptureFixture) -> None:
    requirements.say_once.cache_clear()
    ours = "mcore_unpatch.compat"
    with caplog.at_level(logging.INFO, "mcore_unpatch"):
        for _ in range(2):
            requirements.say_once(f"{ours}.skyrl")
        requirements.say_once("other", "a kernel")
    undo = "in place of a patch; MCORE_UNPATCH=0 in the environment brings every patch back, MCORE_UNPATCH_OFF="
    hook = "Megatron's output_processor hook"
    assert caplog.messages == [
        f"{ours}.skyrl runs on {hook}, {undo}skyrl this one.",
        f"other runs on a kernel, {undo}other this one.",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_name_that_switches_nothing_off_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCORE_UNPATCH_OFF", "verl.linear_crossentropy,skyrl.x,verl,nemo_rl,")
    requirements.require_switched_on("mcore_unpatch.compat.skyrl")
    with pytest.raises(ImportError, match="nemo_rl is switched off by"):
        requirements.require_switched_on("mcore_unpatch.compat.nemo_rl")
    told = [message.partition(" ")[0] for message in caplog.messages if "switches nothing off" in message]
    assert told == ["MCORE_UNPATCH_OFF=verl.linear_crossentropy", "MCORE_UNPATCH_OFF=skyrl.x"]


def test_the_way_back_is_said_once_too(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCORE_UNPATCH_OFF", "skyrl")
    requirements._say_why.cache_clear()
    for rank in ("1", "0", "0"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ImportError), caplog.at_level(logging.INFO, "mcore_unpatch"):
            requirements.require_switched_on(f"mcore_unpatch.compat.skyrl{'.again' * (rank == '0')}")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
    assert caplog.messages[1].endswith("to use the replacement. A guarded import takes the code that this replaces.")
