"""What only some findings have (a replacement, a place in a test) is in every report that names them."""

from pathlib import Path

import pytest
from checking import write_files
from command import unpatch

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
