"""Each reason for which a patch stays is said: one small change of a patch that would be rewritten, and the reason."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

HEAD = """from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LastLayer


def critic(model: GPTModel, config):
    model.output_layer = LastLayer(config.hidden_size, 1)
"""
LAYER = "LastLayer(config.hidden_size, 1)"


def reason(text: str) -> str:
    """Why nothing was rewritten; "" where it was."""
    result = migrate({"pkg/a.py": text.encode()}, Options(unsafe_fixes=True))
    said = [remark.text for remark in result.plan.remarks if remark.text.startswith("Not rewritten: ")]
    assert bool(said) is not bool(result.changed), result.plan.remarks
    return said[0].removeprefix("Not rewritten: ").partition(".\n")[0] if said else ""


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        (LAYER, LAYER, ""),
        (f"{LAYER}\n", f"{LAYER}; x = 1\n", "line 7 holds more than one statement"),
        ("LastLayer", "add_value_head", "the name `add_value_head` is taken"),
        (LAYER, "config.layer", "`config.layer` is not created here"),
        (LAYER, "Linear(config.hidden_size, 1)", "`Linear` does not accept `weight=`"),
        (LAYER, "LastLayer(config.hidden_size, 2)", "`LastLayer(...)` is not known to return one value per token"),
        (LAYER, 'LastLayer("""\na""", 1)', "line 7 has a comment or a string that would move"),
    ],
)
def test_a_value_head(old: str, new: str, because: str) -> None:
    assert old in HEAD
    said = reason(HEAD.replace(old, new))
    assert said.startswith(because) if because else said == ""
