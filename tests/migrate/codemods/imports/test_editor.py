"""Imports that several codemods ask for in one file land as if one had asked for them."""

from __future__ import annotations

import ast

import pytest

from mcore_unpatch.codemods.changes import Reason, least_safe
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
        bench.imports("m.py").add(module, [name], reason)
    return made(bench.source("m.py"), bench.import_changes()).decode()


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


def test_an_edit_for_several_reasons_is_as_unsafe_as_the_worst_of_them() -> None:
    for reasons in ([SAFE, UNSAFE], [UNSAFE, SAFE], [SAFE, UNSAFE, SAFE]):
        assert least_safe(reasons) is UNSAFE
    assert least_safe([SAFE]) is SAFE


@pytest.mark.parametrize("wide", [True, False])
def test_an_import_is_as_wide_as_the_file(wide: bool) -> None:
    """A name that goes leaves one line only where that fits; it was in rows before."""
    name = "one_of_a_length_that_matters_here_and_in_the_whole_file"
    before = f"from some.package.with_a_name import (\n    {name},\n    other,\n)\nx = {'y' * (100 if wide else 9)}\n"
    bench = Workbench(Repository(["m.py"], {"m.py"}.__contains__, {"m.py": before.encode()}.__getitem__))
    node = bench.source("m.py").tree.body[0]
    assert isinstance(node, ast.ImportFrom)
    bench.imports("m.py").drop(node, {"other"}, SAFE)
    new = made(bench.source("m.py"), bench.import_changes()).decode()
    assert len(new.splitlines()) == (2 if wide else 4), new
