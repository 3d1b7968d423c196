"""The names that rewrites point to are there, and migrated files hand out the shims' own functions."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import releases
from planning import Result, migrate

from mcore_unpatch.codemods.catalogue.nemo_rl import COMPAT, KWARGS, NEMO_RL
from mcore_unpatch.codemods.catalogue.verl import FUSED, VERL
from mcore_unpatch.codemods.shims.contract import Shim
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.rules import Selection

pytest.importorskip("torch")
pytest.importorskip("megatron.core")


@pytest.mark.parametrize("shim", [*VERL.shims, *NEMO_RL.shims], ids=lambda shim: shim.compat)
def test_every_name_is_there(shim: Shim) -> None:
    module = import_module(shim.compat)
    assert not [name for name in shim.names if not callable(getattr(module, name, None))]


def test_the_new_name_of_nemo_rl_is_there() -> None:
    assert callable(getattr(import_module(COMPAT), KWARGS))


def test_the_helper_of_the_lm_head_rewrite_is_there() -> None:
    assert callable(import_module("mcore_unpatch.compat").attach)


@pytest.mark.parametrize("release", ["0.8.0", "0.9.1"])
@pytest.mark.parametrize("shim", VERL.shims, ids=lambda shim: shim.module)
def test_migrated_files_of_verl_import_and_are_the_shims(
    shim: Shim, release: str, migrated: Callable[[str], Result]
) -> None:
    path = f"verl/{shim.file}"
    if shim is FUSED and release == "0.9.1":  # stands on the hook, and changes only where that is asked for
        asked = releases.patched_part(release, "model_forward_fused.py", "util.py")
        result = migrate(asked, Options(unsafe_fixes=True, selection=Selection(("MCU1", "MCU7"))))
    else:
        result = migrated(release)
    module = types.ModuleType(shim.module)
    exec(compile(result.files[path], path, "exec"), module.__dict__)
    original = import_module(shim.compat)
    assert module.__all__
    assert all(getattr(module, name) is getattr(original, name) for name in module.__all__)


def test_migrated_files_of_nemo_rl_import_and_name_the_shims(tmp_path: Path) -> None:
    """`model_utils` as a whole; of the others, which need what NeMo RL installs, the imports of the shims."""
    files = {path: data for path, data in releases.nemo_rl().items() if path.startswith("nemo_rl/")}
    result = migrate(files)
    for path, data in result.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    code = "import nemo_rl.distributed.model_utils as m; assert not hasattr(m, '_gpt_forward_with_linear_ce_fusion')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    shim = import_module(COMPAT)
    names = [
        alias.name
        for path in result.changed
        for node in ast.walk(ast.parse(result.files[path]))
        if isinstance(node, ast.ImportFrom) and node.module == COMPAT
        for alias in node.names
    ]
    assert {KWARGS, "patch_gpt_model_forward_for_linear_ce_fusion"} <= set(names)
    assert all(callable(getattr(shim, name)) for name in names)


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("verl/models/mcore/{}", "verl"),
        ("fork/verl/models/mcore/{}", "verl"),
        ("third_party/ours/models/mcore/{}", "ours"),
        ("ours/models/mcore/{}", "ours"),
        ("models/mcore/{}", "verl"),
        ("{}", "verl"),
        ("elsewhere/{}", "verl"),
    ],
)
def test_the_package_that_a_file_belongs_to(path: str, package: str) -> None:
    for shim in VERL.shims:
        folder, _, name = shim.file.rpartition("/")
        if folder == "models/mcore":
            assert VERL.package_of(path.format(name), shim) == package
