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
    assert unsafe(a=CALLER).files["pkg/a.py"].startswith(shim)
    result = unsafe(a=CALLER, b=f"{HEAD}{CLASS_PATCH}{install}GPTModel._postprocess = ours\n")
    assert result.files["pkg/a.py"].decode() == CALLER
    told = (
        f"`GPTModel._postprocess` stays patched in pkg/b.py, line {9 if install else 8}, and the hook goes through it"
    )
    assert said(result, "MCU701") == [f"not rewritten: {told}: move that patch first"]


def test_shims_take_along_a_patch_that_their_megatron_does_not_need() -> None:
    """As veRL's for NPUs, which turns 0 MTP layers into none: Megatron does so since 0.17, and the shims need 0.18."""
    files = {
        "pkg/a.py": CALLER.encode(),
        "pkg/b.py": NO_LAYERS.encode(),
        "pkg/c.py": b"import pkg.b\n\npkg.b.install()\n",
    }
    result = migrate(files)
    assert result.files["pkg/a.py"].startswith(b"from mcore_unpatch.compat.verl")
    assert (result.files["pkg/b.py"], result.files["pkg/c.py"]) == (b"", b"")
    assert said(result, "MCU201") == []


NO_LAYERS = """def install():
    from megatron.core.models.gpt.gpt_model import GPTModel

    original = GPTModel._postprocess

    def without(self, *args, **kwargs):
        number = self.config.mtp_num_layers
        if not self.config.mtp_num_layers:
            self.config.mtp_num_layers = None
        try:
            return original(self, *args, **kwargs)
        finally:
            self.config.mtp_num_layers = number

    GPTModel._postprocess = without
"""
