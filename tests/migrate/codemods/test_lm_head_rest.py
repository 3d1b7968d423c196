"""What stands around a wrapper that goes: comments move, those for tools go, the handle takes the place."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options

HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
SKIP = "def skip(hidden, weight=None, runtime_gather_output=None):\n    return hidden, None\n\n\n"
WRAP = """\
def wrap(model: GPTModel):
    model.output_layer.kept = model.output_layer.forward
    model.output_layer.forward = skip


def unwrap(model: GPTModel):
    model.output_layer.forward = model.output_layer.kept
    model.output_layer.kept = None
"""


def migrated(text: str) -> str:
    return migrate({"a.py": (HEAD + text).encode()}, Options(unsafe_fixes=True)).files["a.py"].decode()


@pytest.mark.parametrize(
    "pragma",
    [
        "# type: ignore",
        "# noqa: E501",
        "# pylint: disable=all",
        "# pragma: no cover",
        "# fmt: off",
        "# pyright: basic",
        "# mypy: ignore-errors",
    ],
)
def test_a_comment_for_a_tool_goes_with_its_line_and_one_for_people_moves(pragma: str) -> None:
    new = migrated(
        f"""\
def wrap(model: GPTModel, ids):
    def skip(hidden, weight=None, runtime_gather_output=None):
        # The head comes later.
        return hidden, None  {pragma}

    model.output_layer.forward = skip
    return model(ids)
"""
    )
    assert "    # The head comes later.\n    attach(model, HeadInputs())\n    return model(ids)\n" in new
    assert pragma not in new


@pytest.mark.parametrize(
    "asks",
    [
        'hasattr(layer, "{name}")',
        'getattr(layer, "{name}", None)',
        'setattr(layer, "{name}", None)',
        'delattr(layer, "{name}")',
    ],
)
def test_who_asks_for_the_original_asks_for_the_handle(asks: str) -> None:
    new = migrated(f"{SKIP}{WRAP}\n\ndef look(layer):\n    return {asks.format(name='kept')}\n")
    assert "model.output_layer.hook_handle = attach(model, HeadInputs())" in new
    assert f"    return {asks.format(name='hook_handle')}\n" in new


@pytest.mark.parametrize("slots", ['("{name}", "other")', '["other", "{name}"]', '"{name}"'])
def test_slots_have_a_place_for_the_handle(slots: str) -> None:
    new = migrated(f"{SKIP}{WRAP}\n\nclass Layer:\n    __slots__ = {slots.format(name='kept')}\n")
    assert f"    __slots__ = {slots.format(name='hook_handle')}\n" in new


def test_the_same_word_elsewhere_is_another_thing() -> None:
    new = migrated(
        f'{SKIP}{WRAP}\n\nclass Layer:\n    words = ("kept",)\n\n    def say(self):\n        print("kept")\n'
    )
    assert 'words = ("kept",)' in new
    assert 'print("kept")' in new


def test_who_takes_the_original_itself_is_left_alone() -> None:
    text = f"{SKIP}{WRAP}\n\ndef look(layer):\n    return layer.kept\n"
    assert migrated(text) == HEAD + text


@pytest.mark.parametrize(("test", "known"), [("weight is not None", True), ("ids", False)])
def test_a_choice_between_two_weights_asks_for_the_weight(test: str, known: bool) -> None:
    text = f"""\
def wrap(model: GPTModel, box, ids):
    def keep(hidden, weight=None, runtime_gather_output=None):
        box.weight = weight if {test} else model.output_layer.weight
        return hidden, None

    model.output_layer.forward = keep
"""
    new = migrated(text)
    assert ("HeadInputs(keep=keep_weight)" in new) == known
    assert (f"box.weight = weight if {test} else" in new) == (not known)
