"""NeMo RL's flag: a function asks for log-probs after its migration exactly where it did before, and steps fit."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings, strategies as st
from planning import migrate

FLAG = "return_logprobs_for_linear_ce_fusion"
HOOK = ("output_processor", "output_processor_context")
VALUES = st.sampled_from(["True", "False", "a", "b"])
CONSTANTS = st.sampled_from(["True", "False"])


@st.composite
def statements(draw: st.DrawFn, depth: int = 2) -> str:
    """What somebody does to the arguments of a call."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        value = draw(VALUES)
        simple = [
            f'kwargs["{FLAG}"] = {value}',
            f"kwargs.update({FLAG}={value})",
            f'kwargs.update({{"{FLAG}": {value}}})',
            f'kwargs.update({{"x": 1, "{FLAG}": {value}}})',
            f"kwargs.update({FLAG}={value}, x=1)",
            f'kwargs.setdefault("{FLAG}", {draw(CONSTANTS)})',
            f'kwargs.pop("{FLAG}", None)',
            'kwargs["x"] = 2',
            "kwargs.update(x=3)",
        ]
        heads = ["if a:", "for _ in range(2):", "if b:"]
        head = draw(st.sampled_from(heads)) if depth and draw(st.booleans()) else ""
        if not head:
            lines.append(draw(st.sampled_from(simple)))
            continue
        lines += [head, textwrap.indent(draw(statements(depth - 1)), "    ")]
        if head.startswith("if") and draw(st.booleans()):
            lines += ["else:", textwrap.indent(draw(statements(depth - 1)), "    ")]
    return "\n".join(lines)


MADE = st.sampled_from(
    ["{}", '{"x": 0}', f'{{"x": 0, "{FLAG}": False}}', f"dict({FLAG}=True)", f'{{"{FLAG}": a}}', "dict(x=0)"]
)
CALLS = st.sampled_from(["model(ids, **kwargs)", f'model(ids, **kwargs), model(ids, **{{"{FLAG}": b}})'])


def results(code: str, model: Any) -> list[Any]:
    """What a function returns for all conditions."""
    names: dict[str, Any] = {"linear_ce_fusion_kwargs": lambda of, numbers: dict.fromkeys(HOOK, of)}
    exec("\n".join(line for line in code.splitlines() if not line.startswith("from ")), names)
    return [names["f"](model, 0, a, b) for a in (True, False) for b in (True, False)]


def patched(ids: int, **kwargs: Any) -> bool:
    """A model whose forward knows the flag."""
    return bool(kwargs.get(FLAG, False))


def hooked(ids: int, **kwargs: Any) -> bool:
    """A model of Megatron's own, which does not."""
    assert FLAG not in kwargs
    assert (HOOK[0] in kwargs) == (HOOK[1] in kwargs)
    return HOOK[0] in kwargs


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MADE, statements(), CALLS)
@example(
    made="{}",
    body=f"""\
if a:
    for _ in range(2):
        kwargs.setdefault("{FLAG}", False)
else:
    for _ in range(2):
        kwargs.setdefault("{FLAG}", True)""",
    call="model(ids, **kwargs)",
)
def test_log_probs_are_asked_for_where_they_were(made: str, body: str, call: str) -> None:
    code = f"def f(model, ids, a, b):\n    kwargs = {made}\n{textwrap.indent(body, '    ')}\n    return {call}\n"
    result = migrate({"m.py": code.encode()})  # a second run changes nothing
    if result.remarks("by-hand"):
        event("left to a person")
        return
    event("rewritten")
    assert results(result.files["m.py"].decode(), hooked) == results(code, patched)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (f'x = "{FLAG}" in kwargs', 'test `"output_processor" in kwargs`'),
        (f'x = kwargs["{FLAG}"]', 'read `kwargs.get("output_processor") is not None`'),
        (f'x = kwargs.get("{FLAG}")', 'read `kwargs.get("output_processor") is not None`'),
        (f'x = kwargs.pop("{FLAG}", False)', 'take both hook arguments out instead: `kwargs.pop("output_processor"'),
        (f'del kwargs["{FLAG}"]', 'write `del kwargs["output_processor"], kwargs["output_processor_context"]`'),
        (f'kwargs["{FLAG}"] = False', 'write `kwargs.pop("output_processor", None); kwargs.pop("output_processor_'),
        (f'kwargs.setdefault("{FLAG}", True)', 'write `if "output_processor" not in kwargs: kwargs.update('),
        (f'x = {{**kwargs, "{FLAG}": False}}', "An earlier entry may already hold the hook arguments"),
        (f'x = {{"{FLAG}": True}}', "Cannot tell which model receives these arguments"),
        (f'x = ["{FLAG}"]', f"Nothing reads `{FLAG}` any more"),
    ],
)
def test_the_steps_are_told_at_the_line(line: str, step: str) -> None:
    code = f"def f(kwargs):\n    {line}\n"
    result = migrate({"m.py": code.encode()})
    assert result.files["m.py"].decode() == code
    [remark] = result.plan.remarks
    assert (remark.line, remark.kind) == (2, "by-hand")
    assert step in remark.text
