"""The names that rewrites point to are there, and migrated files hand out the shims' own functions."""

from __future__ import annotations

import ast
from importlib import import_module

import pytest
import releases
from planning import migrate

from mcore_unpatch.codemods.catalogue.nemo_rl import COMPAT, KWARGS, NEMO_RL
from mcore_unpatch.codemods.catalogue.verl import VERL
from mcore_unpatch.codemods.shims.contract import Shim

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


def test_migrated_files_of_nemo_rl_name_what_the_shims_have() -> None:
    files = {path: data for path, data in releases.nemo_rl().items() if path.startswith("nemo_rl/")}
    result = migrate(files)
    shim = import_module(COMPAT)
    names = [
        alias.name
        for path in result.changed
        for node in ast.walk(ast.parse(result.files[path]))
        if isinstance(node, ast.ImportFrom) and node.module == COMPAT
        for alias in node.names
    ]
    assert names == ["patch_gpt_model_forward_for_linear_ce_fusion"]
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
