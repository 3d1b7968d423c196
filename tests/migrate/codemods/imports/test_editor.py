"""Imports that several codemods ask for in one file land as if one had asked for them."""

from __future__ import annotations

import ast

import pytest
from planning import migrate

from mcore_unpatch.codemods.changes import Reason, least_safe
from mcore_unpatch.codemods.making import made
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Options, Repository

SAFE = Reason("MCU101", "safe", "imports the shim")
UNSAFE = Reason("MCU103", "unsafe", "runs in the hook")
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


def test_names_of_one_statement_that_go_to_two_modules() -> None:
    files = {
        "pkg/__init__.py": b"",
        "pkg/registry.py": b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n"
        b"from verl.models.mcore.mtp_patch import patch_postprocess\n",
        "pkg/engine.py": b"from pkg.registry import (\n    patch_fused_forward,  # fused\n    patch_postprocess,\n)\n",
    }
    assert migrate(files).files["pkg/engine.py"] == (
        b"from mcore_unpatch.compat.verl.model_forward_fused import (\n    patch_fused_forward,  # fused\n)\n"
        b"from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
    )


CRITIC = b"""\
import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion
from verl.models.mcore.mtp_patch import patch_postprocess


def make(model: GPTModel, config, layers):
    model.output_layer = layers.LinearForLastLayer(input_size=8, output_size=1, config=config)
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=patch_postprocess(model))
    return torch.float32
"""


def test_a_proposals_import_is_sorted_among_those_of_the_shims() -> None:
    tree = ast.parse(migrate({"m.py": CRITIC}, Options(unsafe_fixes=True)).files["m.py"])
    froms = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert froms[:3] == [COMPAT, f"{COMPAT}.nemo_rl", f"{COMPAT}.verl.mtp_patch"]


def test_a_proposal_that_is_only_shown_changes_nothing_about_the_others() -> None:
    assert (
        migrate({"m.py": CRITIC})
        .files["m.py"]
        .startswith(
            b"import torch\n"
            b"from mcore_unpatch.compat.nemo_rl import patch_gpt_model_forward_for_linear_ce_fusion\n"
            b"from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
        )
    )


OLD = "verl.models.mcore.mtp_patch"
COMMENTED = {
    "a statement that moves": f"import torch\n\n# above\nfrom {OLD} import patch_postprocess  # behind\n",
    "one that finds its place elsewhere": f"import zlib\n\nimport torch\n# above\nfrom {OLD} import "
    "patch_postprocess  # behind\n",
    "one that another takes in": "from mcore_unpatch.compat.verl.mtp_patch import unpatch_postprocess\n"
    f"# above\nfrom {OLD} import patch_postprocess  # behind\n",
    "two that become one": f"import os\n\n# above\nfrom {OLD} import patch_postprocess  # behind\n"
    f"# above too\nfrom {OLD} import unpatch_postprocess  # behind too\n",
    "over several lines": "from mcore_unpatch.compat.verl.mtp_patch import unpatch_postprocess\n"
    f"from {OLD} import (  # open\n    # above\n    patch_postprocess,  # behind\n    # last\n)  # close\n",
    "a name that is there already": "from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
    f"# above\nfrom {OLD} import patch_postprocess  # behind\n",
    "a name of several lines": f"import os\nfrom {OLD} import (  # open\n    other,\n    # above\n"
    "    patch_postprocess,  # behind\n    # last\n)  # close\n",
}


@pytest.mark.parametrize("source", COMMENTED.values(), ids=COMMENTED)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_comments_above_and_behind_an_import_that_moves_stay(source: str, newline: str) -> None:
    new = migrate({"pkg/m.py": source.replace("\n", newline).encode()}).files["pkg/m.py"].decode()
    assert "mcore_unpatch.compat.verl" in new
    told = sorted(part.strip() for line in source.splitlines() for part in line.split("#")[1:])
    assert sorted(part.strip() for line in new.splitlines() for part in line.split("#")[1:]) == told


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import zlib\nfrom {old} import patch_postprocess\nimport os\n", "import zlib\n{new}import os\n"),
        (
            "import zlib\nfrom {old} import patch_postprocess, other\nimport os\n",
            "import zlib\nfrom {old} import other\n{new}import os\n",
        ),
        ("import torch\n\nfrom {old} import patch_postprocess\n", "import torch\n\n{new}"),
        (
            "from zlib import a\n\nfrom {old} import(patch_postprocess, other)\n",
            "from zlib import a\n\n{new}from {old} import other\n",
        ),
        (
            "from {old} \\\n    import patch_postprocess\n",
            "from mcore_unpatch.compat.verl.mtp_patch \\\n    import patch_postprocess\n",
        ),
    ],
    ids=["not sorted", "one of two names", "sections of no kind", "brackets without a space", "a continued line"],
)
def test_an_import_keeps_its_place_unless_the_file_is_sorted(before: str, after: str) -> None:
    new = "from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
    files = migrate({"pkg/m.py": before.format(old=OLD).encode()}).files
    assert files["pkg/m.py"].decode() == after.format(old=OLD, new=new)


def test_an_edit_for_several_reasons_is_as_unsafe_as_the_worst_of_them() -> None:
    for reasons in ([SAFE, UNSAFE], [UNSAFE, SAFE], [SAFE, UNSAFE, SAFE]):
        assert least_safe(reasons) is UNSAFE
    assert least_safe([SAFE]) is SAFE


@pytest.mark.parametrize(
    "line", [f"from {OLD} import patch_postprocess", f"from {OLD} import patch_postprocess, other"]
)
@pytest.mark.parametrize(
    "rest", ["", f"from {COMPAT}.verl.mtp_patch import a\n", "from aa import b\nfrom zz import c\n"]
)
def test_a_name_goes_from_one_place_only_when_it_comes_to_the_other(line: str, rest: str) -> None:
    before = f"{rest}{line}\n".encode()
    bench = Workbench(Repository(["m.py"], {"m.py"}.__contains__, {"m.py": before}.__getitem__))
    node = bench.source("m.py").tree.body[-1]
    assert isinstance(node, ast.ImportFrom)
    bench.imports("m.py").move(node, {"patch_postprocess"}, f"{COMPAT}.verl.mtp_patch", SAFE)
    bench.imports("m.py").add(f"{COMPAT}.verl.mtp_patch", ["attach"], UNSAFE)
    assert {asked.reason.applicability for asked in bench.import_changes()} == {"unsafe"}


def test_a_part_of_the_package_is_not_what_has_its_name() -> None:
    """`import ray` in `slime/utils` is the library, though there is a `slime/ray`: the imports are in sections."""
    text = b"import os\n\nimport ray\nimport torch\n\nfrom slime.ray import group\n\n"
    before = text + b"from .patch import patch_postprocess\n\npatch_postprocess(ray, group)\n"
    files = {
        "slime/__init__.py": b"",
        "slime/ray/__init__.py": b"group = 1\n",
        "slime/utils/__init__.py": b"",
        "slime/utils/m.py": before,
    }
    bench = Workbench(Repository(sorted(files), {*files, "slime", "slime/ray"}.__contains__, files.__getitem__))
    editor = bench.imports("slime/utils/m.py")
    moved = next(node for node in editor.source.every(ast.ImportFrom) if node.level)
    editor.move(moved, {"patch_postprocess"}, COMPAT, SAFE)
    new = made(editor.source, bench.import_changes()).decode()
    assert f"import ray\nimport torch\nfrom {COMPAT} import patch_postprocess\n\nfrom slime.ray import group\n" in new


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
