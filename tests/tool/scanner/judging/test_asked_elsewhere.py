"""A patch that uses Megatron in a way that raises, where another patch of the repository may be what is reached."""

from __future__ import annotations

import pytest
from checking import found_in

from mcore_unpatch.findings.finding import Finding

CALLS = """
    from megatron.core import utils
    from megatron.core.models.gpt.gpt_model import GPTModel

    def forward(self, input_ids, *args, **kwargs):
        return utils.get_model_config(self, input_ids)

    GPTModel.forward = forward
"""
READS = CALLS.replace("utils.get_model_config(self, input_ids)", "enums.Fp8Recipe.blockwise").replace("utils", "enums")


def judged(patch: str, other: str, path: str = "b.py") -> Finding:
    stack = {"requirements.txt": f"megatron-core=={'0.12.1' if patch is READS else '0.19.2'}\n"}
    [finding] = [one for one in found_in({"a.py": patch, path: other, **stack}) if one.path == "a.py"]
    return finding


PATCH_FILE = """\
--- a/megatron/core/{0}.py
+++ b/megatron/core/{0}.py
@@ -1,2 +1,2 @@ def {1}(model):
     a = 1
-    b = 1
+    b = 2
"""


@pytest.mark.parametrize(
    ("other", "path", "said"),
    [
        (PATCH_FILE.format("utils", "get_model_config"), "m.patch", "m.patch:3 changes `get_model_config`"),
        (PATCH_FILE.format("utils", "get_attr_wrapped_model"), "m.patch", ""),
        ("import megatron.core\ndef mine(): ...\nmegatron.core.utils = mine\n", "b.py", ""),
        ("import sys\nimport mine\nsys.modules['megatron.core.utils'] = mine\n", "b.py", "b.py:3 replaces `utils`"),
    ],
)
def test_a_patch_file_and_a_module(other: str, path: str, said: str) -> None:
    finding = judged(CALLS, other, path)
    assert finding.assessment.overridden == (f"{said}, which may be what is reached" if said else "")


FIELD = """
    from megatron.core.transformer.multi_latent_attention import MultiLatentAttention

    def forward(self, hidden_states, *args, **kwargs):
        return self.config.experimental_attention_variant

    MultiLatentAttention.forward = forward
"""
CONFIG = "from megatron.core.transformer import TransformerConfig\n"
OWN = CONFIG + "class Mine(TransformerConfig):\n    {}: str = ''\n"
MADE = CONFIG + "def made(self):\n    self.__dict__.update(vars(args))\nTransformerConfig.{} = made\n"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            OWN.format("experimental_attention_variant"),
            "; a config here has its own `experimental_attention_variant`, ",
        ),
        (MADE.format("__post_init__"), "; the constructor of `MLATransformerConfig` is patched too, which may set it"),
        (OWN.format("another"), ""),
        (OWN.format("experimental_attention_variant").replace("(TransformerConfig)", ""), ""),
        (MADE.format("validate"), ""),
    ],
)
def test_a_field_of_a_config_that_the_repository_may_have_itself(other: str, said: str) -> None:
    stack = {"requirements.txt": "megatron-core==0.15.0\n"}
    [finding] = [one for one in found_in({"a.py": FIELD, "b.py": other, **stack}) if one.path == "a.py"]
    assert (
        "`MLATransformerConfig.experimental_attention_variant` does not exist before megatron-core 0.16.0"
        in finding.message
    )
    assert (finding.effect, said in finding.message) == ("may_break" if said else "breaks", True)
