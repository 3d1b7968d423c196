"""Encoder detaches that are left, and why; those that are rewritten are golden pairs."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options

FILE = """from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detached(self, input_ids, position_ids, embedding, hidden_states, flag=False):
    out = embedding(input_ids)
{body}


def patch(layer: MultiTokenPredictionLayer):
    {install}
"""
INSTALL = "layer._get_embeddings = detached.__get__(layer)"


def migrated(body: str, install: str = INSTALL, **options: object) -> tuple[bool, str]:
    """Whether the file changed, and all that is said of it."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = FILE.format(body=lines, install=install).encode()
    result = migrate({"pkg/mtp.py": text}, Options(unsafe_fixes=True, **options))  # type: ignore[arg-type]
    notes = [note for edit in result.plan.edits for note in edit.notes]
    return bool(result.changed), "\n".join([*(one.text for one in result.plan.remarks), *notes])


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ("if flag:\n    out = out.detach()\nreturn out, hidden_states", "depends on the condition on line 6"),
        (
            "hidden = hidden_states.detach()\nif flag:\n    hidden = hidden_states\nreturn out, hidden",
            "depends on the condition on line 7",
        ),
        ("hidden_states = hidden_states.detach() * 2\nreturn out, hidden_states", "line 6 does more than detach"),
        ("return out, scaled(hidden_states.detach())", "line 6 calls `scaled`, which Megatron's own method does not"),
        ("out = out.detach()\nresult = out, hidden_states\nreturn result", "line 8 does not return a tuple"),
        ("return out, hidden_states.detach() if flag else hidden_states", "neither hooks nor the config have"),
        (
            "if flag:\n    return out.detach(), hidden_states\nreturn out, hidden_states.detach()",
            "detach different values",
        ),
        ("return out, make_viewless_tensor(hidden_states, keep_graph=False)", "neither hooks nor the config have"),
        (
            "out = out.detach()\n(out, _) = position_ids, flag\nreturn out, hidden_states",
            "line 7 does more than detach",
        ),
    ],
)
def test_what_is_not_exactly_a_detach_is_left(body: str, because: str) -> None:
    changed, said = migrated(body)
    assert not changed
    assert because in said


def test_a_class_has_no_layer_at_hand() -> None:
    changed, said = migrated("return out.detach(), hidden_states.detach()", "type(layer)._get_embeddings = detached")
    assert not changed
    assert "the patch is on the class, not on a layer" in said


def test_what_detaches_nothing_is_of_another_kind() -> None:
    assert migrated("return out, hidden_states") == (False, "")


def test_a_function_that_does_not_shift_is_told() -> None:
    changed, said = migrated("return out.detach(), hidden_states.detach()")
    assert changed
    assert "it shifts tokens and positions by one, which `detached` did not" in said
    assert "shifts" not in migrated("x = roll_tensor(input_ids)\nreturn out.detach(), hidden_states.detach()")[1]


def test_an_older_release_has_no_compat() -> None:
    changed, said = migrated("return out, hidden_states.detach()", older=lambda _: "it is for 0.17")
    assert not changed
    assert "it is for 0.17" in said


def test_a_name_that_is_taken_is_not_used() -> None:
    changed, said = migrated("return out, hidden_states.detach()", f"detach_mtp_inputs = 0\n    {INSTALL}")
    assert not changed
    assert "the name `detach_mtp_inputs` is taken" in said
