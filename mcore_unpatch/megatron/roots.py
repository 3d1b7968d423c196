"""The packages of the megatron-core distribution, and how the tables write their names."""

from __future__ import annotations

from mcore_unpatch.megatron.versions import Version

ROOT = "megatron.core"
TRAINING = "megatron.training"
PACKAGES = (ROOT, TRAINING)
TRAINING_SINCE: Version = (0, 17)  # before, only a checkout of Megatron-LM has it
_PREFIXES = tuple(f"{package}." for package in PACKAGES)


def within(name: str) -> bool:
    """Whether a dotted name lies in the distribution."""
    return name.startswith(_PREFIXES) or name in PACKAGES


def expand(name: str) -> str:
    """`~.transformer` as the tables write it, spelled out."""
    return ROOT + name[1:] if name.startswith("~") else name


def shorten(name: str) -> str:
    """The opposite of `expand`."""
    return "~" + name.removeprefix(ROOT) if f"{name}.".startswith(f"{ROOT}.") else name
