"""What only some findings have (a replacement, a place in a test) is in every report that names them."""

from dataclasses import replace
from pathlib import Path

import pytest
from checking import write_files
from command import unpatch

from mcore_unpatch import pins
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import parse_version

HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
PATCH = """\
--- a/megatron/core/models/gpt/gpt_model.py
+++ b/megatron/core/models/gpt/gpt_model.py
@@ -400,2 +400,3 @@ class GPTModel(LanguageModule):
     def _postprocess(
         self,
+        more=None,
"""
FILES = {
    "a.py": f"{HEAD}from heads import Last\ndef critic(model: GPTModel):\n    model.output_layer = Last(4, 1)\n",
    "tests/test_a.py": f"{HEAD}def f(self): ...\nGPTModel.forward = f\n",
    "tests/a.patch": PATCH,
    "requirements.txt": "megatron-core==0.19.2\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("facts")
    write_files(top, FILES)
    return top


def test_text(folder: Path) -> None:
    out = unpatch("scan", "--verbose", ".", cwd=folder).out
    assert "; in a test\n  (MCU608)." in out or "; in a test (MCU608)." in out
    assert "In tests" in out or "in tests" in out


def test_sarif(folder: Path) -> None:
    rows = unpatch("scan", "--output-format", "sarif", ".", cwd=folder).json["runs"][0]["results"]
    said = {row["ruleId"]: row["message"]["text"] for row in rows}
    assert ". Instead: " in said["MCU501"]
    assert ". Instead: " not in said["MCU608"]


def test_json(folder: Path) -> None:
    rows = unpatch("scan", "--output-format", "json", ".", cwd=folder).json["findings"]
    facts = {row["path"]: (row["rule"], row["in_test"], bool(row["replacement"])) for row in rows}
    assert facts == {
        "a.py": ("MCU501", False, True),
        "tests/test_a.py": ("MCU601", True, False),
        "tests/a.patch": ("MCU608", True, False),
    }


def test_a_pin_of_another_kind() -> None:
    release = known.newest(parse_version("0.18"))
    name = "megatron.core.models.gpt.gpt_model.GPTModel.forward"
    made = pins.pin(name, [release], True)
    assert made is not None
    for kind, said in (("class", "changed from a class to a function"), ("function", "changed its body")):
        other = replace(made, kind=kind, digest="00000000")
        assert pins.difference(other, release) == said
