"""Each reason for which a patch stays is said: one small change of a patch that would be rewritten, and the reason."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

WRAPPER = """from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def doubled(*args, **kwargs):
        return original(*args, **kwargs) * 2

    model.decoder.forward = doubled
"""
RETURN = "return original(*args, **kwargs) * 2"
LAST = "model.decoder.forward = doubled\n"
PLAIN = "return original(*args, **kwargs)"
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
        (RETURN, RETURN, ""),
        (RETURN, "yield original(*args, **kwargs)", "`doubled` is a generator"),
        (
            RETURN,
            f"x = 1\n        out = {PLAIN[7:]}\n        return out * x",
            "`x` of `doubled` is set before the original and read after it",
        ),
        (RETURN, "print(args)\n        return original(*args)", "`doubled` does not forward `**kwargs`"),
        (RETURN, PLAIN, "`doubled` changes nothing"),
        (RETURN, f"print(1)\n        {PLAIN}", ""),
        (RETURN, f"print(args)\n        {PLAIN}", ""),
        (RETURN, f"output = {PLAIN[7:]}\n        output.outputs = 1\n        return output", ""),
        (RETURN, f"x = {PLAIN[7:]}\n        return None", "`doubled` may return None, which a forward hook ignores"),
        (RETURN, f"x = {PLAIN[7:]}", "`doubled` may return None, which a forward hook ignores"),
        ("(*args, **kwargs):", "(  # all\n        *args, **kwargs):", "`doubled` has comments between its parameters"),
        ("original(*args, **kwargs) * 2", "original(*args, **kwargs) * _module", "the name `_module` is taken"),
        (LAST, f"{LAST}    keep(doubled)\n", "`doubled` is also used elsewhere"),
        (LAST, f"{LAST}    print(getattr(model, 'forward'))\n", "line 11 asks for `forward` by name"),
        (LAST, f"{LAST}    print('doubled')\n", "line 11 asks for `doubled` by name"),
        (LAST, f"{LAST}    print(model.decoder.forward)\n", "pkg/a.py:11 calls `forward` directly"),
        (LAST, f"{LAST}    print(vars(model.decoder))\n", "line 11 inspects the layer's attributes"),
        (LAST, f"{LAST}    print(model.decoder.__dict__)\n", "line 11 inspects the layer's attributes"),
        (LAST, f"{LAST}    print(model.decoder.__dict__['x'])\n", ""),
        (LAST, f"{LAST}    print(original)\n", "line 11 passes the original on"),
        (LAST, f"{LAST}    print(original(1))\n", ""),
        (LAST, f"{LAST[:-1]}; x = 1\n", "line 10 or `doubled` holds several statements on a line"),
    ],
)
def test_a_wrapper(old: str, new: str, because: str) -> None:
    assert old in WRAPPER
    said = reason(WRAPPER.replace(old, new))
    assert said.startswith(because) if because else said == ""


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
