"""Output layers whose `forward` was replaced that are no product in fp32 alone, and why they are left."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options

FILE = """from megatron.core.models.gpt.gpt_model import GPTModel
def patch(model: GPTModel, other):
    layer = model.output_layer
    def new(x, weight=None, runtime_gather_output=None):
        {body}
    {install}
"""
INSTALL = "model.output_layer.forward = new"
BODY = "return linear(x.float(), layer.weight.float()), None"
NOT_ALONE = "it is not `linear(hidden.float(), weight.float()), None` of this layer alone"


@pytest.mark.parametrize(
    ("body", "install", "because"),
    [
        ("return linear(x, layer.weight).float(), None", INSTALL, NOT_ALONE),
        ("return linear(x.float(), layer.weight.float(), layer.bias), None", INSTALL, NOT_ALONE),
        ("return linear(x.float(), other.weight.float()), None", INSTALL, NOT_ALONE),
        ("return linear(layer.weight.float(), x.float()), None", INSTALL, NOT_ALONE),
        ("return linear(x.float(), layer.weight), None", INSTALL, NOT_ALONE),
        ("return linear(x.float(), layer.weight.float())", INSTALL, NOT_ALONE),
        ("return x.float() @ layer.weight.float(), None", INSTALL, NOT_ALONE),
        (BODY, "layer.forward = new", "`layer` does not say which model it is of"),
        (BODY, f"kept = model.output_layer.forward; fp32_logits = 0\n    {INSTALL}", "keeps the layer's own forward"),
        (BODY, f"fp32_logits = 0\n    {INSTALL}", "the name `fp32_logits` is taken"),
    ],
)
def test_what_is_not_exactly_that_is_left(body: str, install: str, because: str) -> None:
    result = migrate({"pkg/a.py": FILE.format(body=body, install=install).encode()}, Options(unsafe_fixes=True))
    assert result.changed == set()
    assert any(because in remark.text for remark in result.plan.remarks)


def test_an_older_release_has_no_compat() -> None:
    files = {"pkg/a.py": FILE.format(body=BODY, install=INSTALL).encode()}
    assert migrate(files, Options(unsafe_fixes=True)).changed == set(files)
    assert migrate(files, Options(unsafe_fixes=True, older=lambda _: "it is for 0.17")).changed == set()
