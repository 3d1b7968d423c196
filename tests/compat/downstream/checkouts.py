"""Real downstream code for differential tests: checkouts named by environment variables, loaded in isolation.

A variable may name several checkouts, separated as in PATH. Nothing of them is installed; their packages' `__init__`
files, which import half the world, are left out.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

NEMO_RL = "MCORE_UNPATCH_NEMO_RL"
SKYRL = "MCORE_UNPATCH_SKYRL"


def checkouts(variable: str) -> list[Any]:
    """One parameter for each checkout; a skipped one, with the reason, where there is none."""
    paths = [path for path in os.environ.get(variable, "").split(os.pathsep) if path]
    if paths:
        return [pytest.param(path, id=Path(path).name) for path in paths]
    reason = f"{variable} names no checkout: set it to the folder of one"
    return [pytest.param("", marks=pytest.mark.skip(reason=reason))]


@contextmanager
def loaded(
    checkout: str, package: str, module: str, stand_ins: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[ModuleType]:
    """`module` of `package` in `checkout`, imported without the packages' own `__init__`; gone afterwards.

    `stand_ins` are modules that are imported on the way and play no part in what is tested (a web client, a logger
    that opens files), with the names that are taken from them.
    """
    root = Path(checkout) / package
    assert root.is_dir(), f"no folder {package} in {checkout}"
    folders = [root, *(folder for folder in root.rglob("*") if folder.is_dir() and any(folder.glob("*.py")))]
    try:
        for folder in folders:
            name = ".".join([package, *folder.relative_to(root).parts])
            stand_in = ModuleType(name)
            stand_in.__path__ = [str(folder)]
            sys.modules[name] = stand_in
        for name, attributes in (stand_ins or {}).items():
            sys.modules[name] = ModuleType(name)
            vars(sys.modules[name]).update(attributes)
        yield importlib.import_module(module)
    finally:
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
        for name in stand_ins or {}:
            sys.modules.pop(name, None)


@contextmanager
def nemo_rl_patch(checkout: str, chunk_size: int) -> Iterator[ModuleType]:
    """NeMo RL's own class patch of GPTModel, installed by its own function and taken back afterwards."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    with loaded(checkout, "nemo_rl", "nemo_rl.distributed.model_utils") as utils:
        utils.patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=chunk_size)
        try:
            yield utils
        finally:
            GPTModel.forward = GPTModel._original_forward_for_linear_ce_fusion
            for name in [name for name in vars(GPTModel) if "linear_ce_fusion" in name]:
                delattr(GPTModel, name)
