"""A new import goes where the file imports Megatron: who has none can still import the file."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

USE = """
if value:
    model.output_layer = LastLayer(model.config.hidden_size, 1)
"""


def migrated(head: str, imports: str) -> str:
    """A critic's file with some code at the top, and some in the function."""
    body = "".join(f"    {line}\n" for line in (imports + USE).strip().splitlines())
    source = f"{head}\n\ndef build(config, value):\n{body}    return model\n"
    new = migrate({"pkg/critic.py": source.encode()}, Options(unsafe_fixes=True)).files["pkg/critic.py"].decode()
    assert "add_value_head(model" in new
    return new


LAZY = """
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel.layers import ColumnParallelLinear

model = GPTModel(config)
"""
GPT = "from megatron.core.models.gpt import GPTModel\n"
BRIDGE = "from megatron.bridge import AutoBridge\n"
OURS = "from mcore_unpatch.compat import add_value_head\n"
HEAD = "import torch\nfrom heads import LastLayer\nfrom torch.nn import Module\n"


@pytest.mark.parametrize(
    ("head", "imports", "where"),
    [
        (HEAD, LAZY, "    from mcore_unpatch.compat import add_value_head\n    from megatron.core.models.gpt"),
        (
            f"{HEAD}\ntry:\n    {GPT}except ImportError:\n    GPTModel = None\n",
            "model = GPTModel(config)\n",
            f"try:\n    {OURS}    {GPT}",
        ),
        (
            f"from megatron.core.models.gpt import GPTModel\n\n{HEAD}",
            "model = GPTModel(config)\n",
            "from mcore_unpatch.compat import add_value_head\nfrom megatron.core.models.gpt import GPTModel\n\nimport",
        ),
        (  # of two the one that is made in any case, or tells and raises
            (
                f"try:\n    {GPT}except ImportError:\n    print('no Megatron')\n    raise\n\n"
                f"try:\n    from heads import LastLayer\nexcept ImportError:\n    {GPT}    LastLayer = None\n"
            ),
            "model = GPTModel(config)\n",
            f"try:\n    {OURS}    {GPT}except ImportError:\n    print",
        ),
        (
            f"{HEAD}\nif TYPE_CHECKING:\n    from megatron.core.models.gpt import GPTModel\n",
            LAZY,
            "    from mcore_unpatch.compat import add_value_head\n    from megatron.core.models.gpt",
        ),
        (
            f"{HEAD}\ntry:\n    {GPT.replace('gpt i', 'gpt.gpt_model i')}except ImportError:\n    {GPT}",
            "model = GPTModel(config)\n",
            "from heads import LastLayer\nfrom mcore_unpatch.compat import add_value_head\n",
        ),
        (
            f"{HEAD}\ntry:\n    {BRIDGE}except ImportError:\n    HAVE_BRIDGE = False\n",
            LAZY,
            f"    {OURS}    {GPT}",
        ),
    ],
    ids=[
        "in the function",
        "in the try",
        "at the top",
        "in a try that raises",
        "not for checkers",
        "one of two releases",
        "nor where the function imports Megatron",
    ],
)
def test_an_import_stands_beside_those_of_megatron(head: str, imports: str, where: str) -> None:
    new = migrated(dedent(head), dedent(imports).lstrip())
    ast.parse(new)
    assert where in new, new
    assert new.count("import add_value_head") == 1
