"""A new import goes where the file imports Megatron: who has none can still import the file."""

from __future__ import annotations

import ast

import pytest

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.making import made
from mcore_unpatch.editing.source import Source

GPT = "from megatron.core.models.gpt import GPTModel\n"
OURS = "from mcore_unpatch.compat import attach\n"
HEAD = "import torch\nfrom heads import LastLayer\n"
FORMS = {
    "in the function": (HEAD, f"    {GPT}", f"def build():\n    {OURS}    {GPT}"),
    "in the try": (
        f"{HEAD}\ntry:\n    {GPT}except ImportError:\n    GPTModel = None\n",
        "",
        f"try:\n    {OURS}    {GPT}",
    ),
    "at the top": (f"{GPT}\n{HEAD}", f"    {GPT}", f"{OURS}{GPT}\nimport"),
    "nowhere": (HEAD, "", f"{HEAD}{OURS}"),
}


@pytest.mark.parametrize(("head", "imports", "where"), FORMS.values(), ids=FORMS)
def test_an_import_stands_beside_those_of_megatron(head: str, imports: str, where: str) -> None:
    text = f"{head}\n\ndef build():\n{imports}    return model(1)\n"
    source = Source("pkg/critic.py", text.encode())
    editor = ImportEditor(source)
    editor.add("mcore_unpatch.compat", "attach", Reason("MCU101", "exact", "imports"), source.every(ast.Call)[0])
    new = made(source, editor.changes()).decode()
    ast.parse(new)
    assert where in new, new
    assert new.count("import attach") == 1
