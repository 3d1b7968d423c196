"""Importing a shim where something is missing, replaced or switched off says what; the first call says what runs."""

import logging

import pytest
from downstream.importing import NEEDS_HOOK, SHIMS, Situation, said_by_imports

from mcore_unpatch.compat import requirements

ranks = pytest.mark.ranks


_OF_A_DOWNSTREAM = """
import functools, torch
from megatron.core.models.gpt.gpt_model import GPTModel
theirs = GPTModel.forward
def forward(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):
    return theirs(self, input_ids, position_ids, attention_mask, labels=labels, **kwargs)
forward.__module__ = "trainer.patches"
"""
_WITHOUT = """
import sys
gone = {!r}
sys.modules |= dict.fromkeys([*gone, *(name for name in sys.modules if name.partition(".")[0] in gone)])
"""
ALL = [*SHIMS, *NEEDS_HOOK]
REPLACEMENTS = [*ALL, "mcore_unpatch.compat.hook.changed_heads"]
PACKAGE = "mcore_unpatch.compat.verl"
SOME_OFF = "verl, mcore_unpatch.compat.skyrl"
SITUATIONS = {
    "no torch": Situation(SHIMS, _WITHOUT.format(["torch"])),
    "no megatron": Situation(SHIMS, _WITHOUT.format(["megatron"])),
    "off": Situation([*REPLACEMENTS, PACKAGE], environment={"MCORE_UNPATCH": "0"}),
    "some off": Situation(REPLACEMENTS, environment={"MCORE_UNPATCH_OFF": SOME_OFF}),
    "bare": Situation([PACKAGE], _WITHOUT.format(["torch", "triton", "megatron"])),
    "hidden": Situation(ALL, f"{_OF_A_DOWNSTREAM}GPTModel.forward = forward\n"),
    "as in a Megatron of that version without the hook": Situation(
        ALL, f"{_OF_A_DOWNSTREAM}forward.__module__ = GPTModel.__module__\nGPTModel.forward = forward\n"
    ),
    "wrapped": Situation(ALL, f"{_OF_A_DOWNSTREAM}GPTModel.forward = functools.wraps(theirs)(forward)\n"),
    "patched": Situation(ALL, f"{_OF_A_DOWNSTREAM}GPTModel._postprocess = forward\n"),
}


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, str]]:
    """What each import says in each situation."""
    return dict(zip(SITUATIONS, said_by_imports(*SITUATIONS.values()), strict=True))


@ranks
@pytest.mark.parametrize("missing", ["torch", "megatron"])
def test_a_missing_package_is_named_with_the_extra(said: dict[str, dict[str, str]], missing: str) -> None:
    package = "megatron-core" if missing == "megatron" else missing
    how = "which is not installed; run `pip install 'mcore-unpatch[compat]'`."
    assert said[f"no {missing}"] == {name: f"ImportError: {name} needs {package}, {how}" for name in SHIMS}


def test_what_else_is_missing_is_not_blamed_on_the_extra() -> None:
    error = ModuleNotFoundError("No module named 'flask'", name="flask")
    with pytest.raises(ModuleNotFoundError, match="flask"):
        raise requirements.missing_from_extra("The shim", error)
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        raise requirements.missing_from_extra("The shim", ModuleNotFoundError("nothing"))


@ranks
def test_the_switch_brings_every_patch_back_and_its_package_imports_nothing(said: dict[str, dict[str, str]]) -> None:
    off = said["off"]
    assert off.pop(PACKAGE) == "nothing"
    why = "is switched off by MCORE_UNPATCH=0 in the environment; unset it to use the replacement."
    assert off == {name: f"ImportError: {name} {why}" for name in REPLACEMENTS}
    for name, text in said["some off"].items():
        switched_off = f"ImportError: {name} is switched off by MCORE_UNPATCH_OFF={SOME_OFF} in "
        assert text.startswith(switched_off) if ".verl." in name or "skyrl" in name else text == "nothing"
    assert said["bare"] == {PACKAGE: "nothing"}


@ranks
def test_what_a_patched_class_gets(said: dict[str, dict[str, str]]) -> None:
    """A patch that hides the hook stays what runs; one that says what it wraps is taken at its word.

    One that a shim would refuse later is refused at its import.
    """
    for name, text in said["hidden"].items():
        needs = f"ImportError: {name} needs Megatron's output_processor hook, but GPTModel.forward has no parameter "
        assert text.startswith(f"{needs}output_processor (megatron-core ")
        assert text.endswith("); trainer.patches.forward has replaced it, and runs as before.")
    for text in said["as in a Megatron of that version without the hook"].values():
        assert "no parameter output_processor (megatron-core 0.1" in text
        assert text.endswith("; releases have it from 0.18 on: run `pip install 'megatron-core>=0.18'`.")
    assert set(said["wrapped"].values()) == {"nothing"}
    why = "refuses a patched GPTModel, and trainer.patches.forward has replaced Megatron's method."
    assert said["patched"] == {name: f"ImportError: {name} {why}" if name in SHIMS else "nothing" for name in ALL}


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
