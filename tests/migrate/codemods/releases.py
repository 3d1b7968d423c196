"""Real releases of the downstreams: veRL's wheels by name and version, NeMo RL from a checkout that is given."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from downloads import unpacked

VERL = ("0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")
# For tests of each: the one that hands over and the newest run always.
OFTEN = [one if one in ("0.7.1", "0.9.1") else pytest.param(one, marks=pytest.mark.every_case) for one in VERL]
_PATCHED = (
    "models/mcore/model_forward_fused.py",
    "models/mcore/model_forward_1f1b_overlap.py",
    "models/mcore/mtp_patch.py",
    "models/mcore/patch.py",
    "models/mcore/registry.py",
    "models/mcore/util.py",
    "models/mcore/__init__.py",
    "utils/megatron_utils.py",
    "workers/engine/megatron/transformer_impl.py",
)
NEMO_RL = os.environ.get("MCORE_UNPATCH_NEMO_RL", "")


@cache
def verl(release: str) -> dict[str, bytes]:
    """The Python files of a veRL release, downloaded once."""
    top = unpacked("verl", release)
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in sorted(top.rglob("*.py"))}


def patched_part(release: str, *names: str) -> dict[str, bytes]:
    """The files of a release of veRL that its patches, and who installs them, live in: all, or those of some names."""
    files = {path: data for path, data in verl(release).items() if path.endswith(_PATCHED)}
    return {path: data for path, data in files.items() if not names or path.rpartition("/")[2] in names}


@cache
def nemo_rl() -> dict[str, bytes]:
    """The Python files of the NeMo RL checkout that MCORE_UNPATCH_NEMO_RL names."""
    if not NEMO_RL:
        pytest.skip("MCORE_UNPATCH_NEMO_RL names no checkout of NeMo RL")
    top = Path(NEMO_RL)
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*.py") if path.is_file()}
