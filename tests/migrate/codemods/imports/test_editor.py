"""Imports that several codemods ask for in one file land as if one had asked for them."""

from __future__ import annotations

import pytest

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.making import made
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Repository

SAFE = Reason("MCU101", "exact", "imports the shim")
UNSAFE = Reason("MCU103", "behaviour", "runs in the hook")
COMPAT = "mcore_unpatch.compat"


def with_imports(before: bytes) -> str:
    """A file after three codemods asked it for an import, in an order that is not the sorted one."""
    bench = Workbench(Repository(["m.py"], {"m.py"}.__contains__, {"m.py": before}.__getitem__))
    for module, name, reason in (
        (f"{COMPAT}.verl.mtp_patch", "patch_postprocess", SAFE),
        (f"{COMPAT}.nemo_rl", "linear_ce_fusion_kwargs", SAFE),
        (COMPAT, "attach", UNSAFE),
        (COMPAT, "attach", UNSAFE),
    ):
        editor = bench.imports("m.py")
        editor.add(module, name, reason, editor.source.tree)
    return made(editor.source, editor.changes()).decode()


LINES = (
    "from mcore_unpatch.compat import attach\n"
    "from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs\n"
    "from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\n", "{}\nx = 1\n"),
        ("def f(): ...\n", "{}\n\ndef f(): ...\n"),
        ('"""Text."""\n\nx = 1\n', '"""Text."""\n\n{}\nx = 1\n'),
        ("import torch\nfrom numpy import array\n", "import torch\n{}from numpy import array\n"),
        ("import os\n\nfrom . import a\n", "import os\n\n{}\nfrom . import a\n"),
        ("import os\n\n\nx = 1\n", "import os\n\n{}\n\nx = 1\n"),
        ("import zlib\nimport os\n", "import zlib\nimport os\n\n{}"),
    ],
)
def test_three_that_come_to_one_place(before: str, after: str) -> None:
    assert with_imports(before.encode()) == after.format(LINES)
    assert with_imports(before.replace("\n", "\r\n").encode()) == after.format(LINES).replace("\n", "\r\n")


def test_a_file_without_a_final_newline_stays_one() -> None:
    assert with_imports(b"import os") == f"import os\n\n{LINES}".removesuffix("\n")
