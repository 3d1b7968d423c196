"""Diffs of the library's source."""

import pytest

from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.patch_files import patch_files

DIFFS = {
    "git": ("diff --git a/x b/x\n--- a/x\n+++ b/megatron/core/utils.py\n", (3, ["megatron.core.utils"])),
    "below a folder": ("--- a/x\n+++ b/3rdparty/Megatron-LM/megatron/training/x.py\n", (2, ["megatron.training.x"])),
    "a package": ("+++ b/megatron/core/__init__.py\n", (1, ["megatron.core"])),
    "no Python": ("+++ b/megatron/core/datasets/helpers.cpp\n", (1, ["megatron.core.datasets.helpers"])),
    "two files": ("+++ o\n+++ megatron/core/a.py\n+++ megatron/rl/b.py\n", (2, ["megatron.core.a", "megatron.rl.b"])),
    "another project": ("+++ b/verl/megatron_utils.py\n", None),
    "no diff": ("megatron/core/utils.py\n", None),
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFS)
def test_patch_files(case: str) -> None:
    text, expected = DIFFS[case]
    told = [(one.line, list(one.modules)) for one in patch_files({"a.patch": text.encode()}, packed.library())]
    assert told == ([expected] if expected is not None else [])
