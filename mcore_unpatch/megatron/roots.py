"""The packages of the megatron-core distribution: the library that this tool is about."""

from __future__ import annotations

from mcore_unpatch.library.model import Library
from mcore_unpatch.megatron.versions import Version

ROOT = "megatron.core"
TRAINING = "megatron.training"
PACKAGES = (ROOT, TRAINING)
TRAINING_SINCE: Version = (0, 17)  # before, only a checkout of Megatron-LM has it
LIBRARY = Library("megatron-core", PACKAGES)
_PREFIXES = tuple(f"{package}." for package in PACKAGES)


def within(name: str) -> bool:
    """Whether a dotted name lies in the distribution."""
    return name.startswith(_PREFIXES) or name in PACKAGES
