"""A rewrite never stands on a patch that stays: both move, or neither, with the reason."""

from __future__ import annotations

import pytest
from planning import Result, migrate

from mcore_unpatch.editing.edits import Options

HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
CLASS_PATCH = "\n\ndef ours(self, *args, **kwargs):\n    return self.decoder(*args)\n\n\n"


def unsafe(**files: str) -> Result:
    return migrate({f"pkg/{name}.py": text.encode() for name, text in files.items()}, Options(unsafe_fixes=True))


def said(result: Result, rule: str) -> list[str]:
    return [remark.text for remark in result.plan.remarks if remark.rule == rule]


CALLER = (
    "from verl.models.mcore.model_forward_fused import patch_fused_forward\n\n\ndef f(m):\n    patch_fused_forward(m)\n"
)


@pytest.mark.parametrize("install", ["", "def install():\n    "], ids=["at import", "in a function"])
def test_shims_are_not_put_on_a_class_that_stays_patched(install: str) -> None:
    """They would refuse it at run time."""
    shim = b"from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward\n"
    assert shim in unsafe(a=CALLER).files["pkg/a.py"]
    result = unsafe(a=CALLER, b=f"{HEAD}{CLASS_PATCH}{install}GPTModel._postprocess = ours\n")
    assert result.files["pkg/a.py"].decode() == CALLER
    told = f"`GPTModel._postprocess` stays patched in pkg/b.py, line {9 if install else 8}: move that patch first"
    assert said(result, "MCU701") == [f"`patch_fused_forward` is left: {told}"]
