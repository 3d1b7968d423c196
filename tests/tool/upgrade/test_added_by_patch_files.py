"""Parameters and fields that a patch file of the repository adds to Megatron: a call may pass them."""

from pathlib import Path

import pytest
from checking import write_files
from command import unpatch

PATCH = """\
diff --git a/megatron/core/{file} b/megatron/core/{file}
--- a/megatron/core/{file}
+++ b/megatron/core/{file}
@@ -40,3 +40,4 @@ class Any
     num_layers: int = 0
{line}
 pass
"""
USER = """\
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import get_model_config
def forward(self, *args, **kwargs):
    get_model_config(self, ours=3)
    return TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2, own_field=True)
GPTModel.forward = forward
"""
PARAMETER, FIELD = "passes `ours`, which", "passes `own_field`, which"


def told(folder: Path, file: str, line: str, command: str) -> str:
    write_files(folder, {"patches/ours.patch": PATCH.format(file=file, line=line), "a.py": USER})
    steps = {"scan": (), "upgrade": ("--from", "0.17.1", "--to", "0.18.2")}
    return unpatch(command, *steps[command], "--output-format", "json", cwd=folder).out


@pytest.mark.parametrize("command", ["scan", "upgrade"])
@pytest.mark.parametrize(
    ("file", "line", "missing"),
    [
        ("utils.py", "+def get_model_config(model, ours=None):", [FIELD]),
        ("transformer/transformer_config.py", "+    own_field: bool = False", [PARAMETER]),
        ("model_parallel_config.py", "+    own_field: bool = False", [PARAMETER]),  # a base class
        ("utils.py", "+    own_field: bool = False", [PARAMETER, FIELD]),  # of something else
        ("utils.py", "-def get_model_config(model, ours=None):", [PARAMETER, FIELD]),
        ("utils.py", "+    # ours may come", [PARAMETER, FIELD]),
    ],
)
def test_what_a_patch_file_adds_is_taken(
    file: str, line: str, missing: list[str], command: str, tmp_path: Path
) -> None:
    said = told(tmp_path, file, line, command)
    assert [text for text in (PARAMETER, FIELD) if text in said] == missing
