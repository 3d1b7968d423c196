"""A wrapper of `forward` as a hook: each form of it in forms.txt, with the hook that it becomes, or why it stays."""

from pathlib import Path

from forms import check_forms
from planning import planned

from mcore_unpatch.editing.edits import Options, splice

FORMS = Path(__file__).parent / "forms.txt"
AROUND = """\
import functools
from functools import wraps
from megatron.core.models.gpt.gpt_model import GPTModel
def double(model: GPTModel, scale):
    original = model.decoder.forward
    {}
    model.decoder.forward = doubled
"""


def test_every_form_becomes_what_somebody_read() -> None:
    check_forms(FORMS, lambda forms: map(became, forms))


def became(form: str) -> str:
    """The hook, with the line that registers it; or a sentence."""
    data = AROUND.format(form.replace("\n", "\n    ")).encode()
    plan, _ = planned({"m.py": data}, Options(unsafe_fixes=True))
    if not plan.edits:
        return "".join(f" {remark.text.partition(chr(10))[0]}" for remark in plan.remarks)
    _, _, body = splice(data, plan.edits).decode().partition("scale):\n")
    return "\n" + "\n".join(line.removeprefix("    ") for line in body.splitlines() if line.strip())
