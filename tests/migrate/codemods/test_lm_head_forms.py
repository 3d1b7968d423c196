"""LM-head wrappers put together from parts: whatever is rewritten compiles, is clean, and stays as it is."""

from __future__ import annotations

import ast
import builtins
import textwrap

import pytest
from hypothesis import given, strategies as st
from planning import migrate

from mcore_unpatch.codemods.edits import Options

LAYERS = {
    "model.output_layer": "",
    "layer": "layer = model.output_layer",
    "head_": "head_ = getattr(model, 'output_layer', None)",
}
KEEPS = [
    "",
    "CAUGHT['weight'] = weight",
    "box.weight = weight if weight is not None else {layer}.weight",
    "if weight is not None:\n        box.weight = weight",
    "seen['w'] = weight  # tied or not",
]
SWITCHES = ["", "if ON['on']:", "if not enabled:"]
UNDOINGS = ["", "finally", "del", "attribute"]


def wrapper(layer: str, keep: str, switch: str, undoing: str, bound: bool, comment: bool) -> str:
    """The source of one wrapper."""
    own = "self, " if bound else ""
    lines = ["def wrap(model: GPTModel, box, enabled, *ids):"]
    body = ["seen = {}", LAYERS[layer]]
    kept = f"{layer}.kept" if undoing == "attribute" else "original"
    if undoing or switch:
        body.append(f"{kept} = {layer}.forward")
    inner = [keep.format(layer=layer)] if keep else []
    inner.append("return hidden, None")
    called = f"return {kept}(hidden, weight=weight)"
    if switch == "if ON['on']:":
        inner = [switch, *textwrap.indent("\n".join(inner), "    ").splitlines(), called]
    elif switch:
        inner = [switch, f"    {called}", *inner]
    if comment:
        inner.insert(0, "# the loss projects it later")
    body.append(f"def through({own}hidden, weight=None, runtime_gather_output=None):")
    body.append(textwrap.indent("\n".join(inner), "    "))
    value = f"types.MethodType(through, {layer})" if bound else "through"
    body.append(f"{layer}.forward = {value}")
    back = {"finally": f"{layer}.forward = original", "del": f"del {layer}.forward"}.get(undoing)
    if back is not None:
        body += ["try:", "    out = model(*ids)", "finally:", f"    {back}", "return out, seen.get('w')"]
    lines.append(textwrap.indent("\n".join(line for line in body if line), "    "))
    if undoing == "attribute":
        lines += ["", "", "def unwrap(model: GPTModel):", "    model.output_layer.forward = model.output_layer.kept"]
    head = "import types\n\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\nCAUGHT = {}\nON = {}\n\n\n"
    return head + "\n".join(lines) + "\n"


def undefined(source: str) -> set[str]:
    """Names that are read and bound nowhere."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)} | {*dir(builtins)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    bound |= {alias.asname or alias.name for node in nodes for alias in getattr(node, "names", [])}
    return {name.id for name in names} - bound


wrappers = st.builds(
    wrapper,
    st.sampled_from(sorted(LAYERS)),
    st.sampled_from(KEEPS),
    st.sampled_from(SWITCHES),
    st.sampled_from(UNDOINGS),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.slow
@given(source=wrappers, newline=st.sampled_from(["\n", "\r\n"]), end=st.booleans())
def test_what_is_rewritten_is_clean_and_keeps_its_comments(source: str, newline: str, end: bool) -> None:
    text = (source if end else source.rstrip("\n")).replace("\n", newline)
    compile(text, "before", "exec")
    result = migrate({"pkg/wrap.py": text.encode()}, Options(unsafe_fixes=True))
    new = result.files["pkg/wrap.py"].decode()
    compile(new, "after", "exec")
    assert undefined(new) == set()
    assert new.count("\n") == new.count(newline)
    assert new.endswith("\n") == text.endswith("\n")
    assert ("the loss projects it later" in text) == ("the loss projects it later" in new)
    heads = [finding for finding in result.after if finding.rule == "MCU103"]
    by_hand = [remark for remark in result.plan.remarks if remark.rule == "MCU103" and remark.kind == "by-hand"]
    assert bool(heads) == bool(by_hand) == (".forward = t" in new)


@given(newline=st.sampled_from(["\n", "\r\n"]), end=st.booleans(), before=st.booleans(), blank=st.integers(0, 3))
def test_a_function_of_the_module_leaves_no_hole(newline: str, end: bool, before: bool, blank: int) -> None:
    function = "def through(self, hidden, *args, **kwargs):\n    return hidden, None"
    caller = (
        "def wrap(model: GPTModel):\n    model.output_layer.forward = types.MethodType(through, model.output_layer)"
    )
    parts = [function, caller] if before else [caller, function]
    source = "import types\n\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\n\n" + "\n\n\n".join(parts)
    text = (source + ("\n" * (blank + 1) if end else "")).replace("\n", newline).encode()
    new = migrate({"pkg/wrap.py": text}, Options(unsafe_fixes=True)).files["pkg/wrap.py"].decode()
    expected = (
        "from mcore_unpatch.compat import HeadInputs, attach\n"
        "from megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
        "def wrap(model: GPTModel):\n    attach(model, HeadInputs())"
    )
    assert new.replace(newline, "\n").rstrip("\n") == expected
    assert new.endswith(newline) == end


@pytest.mark.parametrize("layer", sorted(LAYERS))
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("undoing", ["", "finally", "del"])
def test_forms_that_are_known(layer: str, switch: str, undoing: str) -> None:
    for keep in KEEPS:
        source = wrapper(layer, keep, switch, undoing, bound=True, comment=False)
        new = migrate({"pkg/wrap.py": source.encode()}, Options(unsafe_fixes=True)).files["pkg/wrap.py"].decode()
        assert "HeadInputs(" in new
        assert "MethodType" not in new
        assert ("when=lambda: " in new) == bool(switch)
        assert ("handle.remove()" in new) == bool(undoing)
