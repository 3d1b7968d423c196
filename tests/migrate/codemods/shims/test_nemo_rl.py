"""NeMo RL's flag: every place that is not `kwargs[flag] = True` of a known model stays, with steps."""

from __future__ import annotations

import pytest
from planning import migrate

FLAG = "return_logprobs_for_linear_ce_fusion"


@pytest.mark.parametrize(
    "line",
    [
        f'x = "{FLAG}" in kwargs',
        f'kwargs["{FLAG}"] = False',
        f'kwargs["{FLAG}"] = fused',
        f'kwargs.setdefault("{FLAG}", True)',
        f"model(**kwargs, {FLAG}=True)",
        f'x = {{"{FLAG}": True}}',
    ],
)
def test_the_steps_are_told_at_the_line(line: str) -> None:
    code = f"def f(model, fused, kwargs):\n    {line}\n    return model(**kwargs)\n"
    result = migrate({"m.py": code.encode()})
    assert result.files["m.py"].decode() == code
    [remark] = result.plan.remarks
    assert (remark.line, remark.kind) == (2, "by-hand")
    assert f"Nothing reads `{FLAG}` any more. Where it was true, pass the model" in remark.text


def test_the_model_has_to_be_known_before_the_line() -> None:
    code = f"def f(build, kwargs):\n    kwargs['{FLAG}'] = True\n    model = build()\n    return model(**kwargs)\n"
    assert migrate({"m.py": code.encode()}).files["m.py"].decode() == code


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Context parallelism is not supported with linear_ce_fusion", True),
        ("no CONTEXT PARALLELISM with fused_linear_logprobs", True),
        ("context parallelism: neither linear_ce_fusion nor fused_linear_logprobs", True),
        ("context parallelism is not supported", False),
        ("linear_ce_fusion needs fused_linear_logprobs", False),
        ("", False),
    ],
)
def test_a_guard_against_context_parallelism_is_told(said: str, told: bool) -> None:
    message = f", {said!r}" if said else ""
    lines = [f"kwargs['{FLAG}'] = True", f"assert cp == 1{message}", "return model(**kwargs)"]
    code = "\n    ".join(["def f(model, kwargs, cp):", *lines]) + "\n"
    assert migrate({"m.py": code.encode()}).remarks("guard") == ([("m.py", 3)] if told else [])


@pytest.mark.parametrize("value", ["True", "False"])
def test_that_logits_are_no_longer_rounded_is_told_once(value: str) -> None:
    code = f"def f(model, kwargs):\n    kwargs['{FLAG}'] = {value}\n    return model(**kwargs)\n".encode()
    result = migrate({"a.py": code, "b.py": code})
    assert result.remarks("numerics") == ([("a.py", 2)] if value == "True" else [])
