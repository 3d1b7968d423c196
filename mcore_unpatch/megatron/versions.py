"""The megatron-core distribution: its packages, and its versions, which are read, compared and asked for here.

A version is as exact as it was written: (0, 18, 2) is one release, (0, 18) the newest 0.18. As a bound, (0, 18) lies
below all of its releases, so that `version >= (0, 18)` holds for each of them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from mcore_unpatch.library.model import Library

if TYPE_CHECKING:  # loaded where a requirement is read: most scans read none
    from packaging.specifiers import SpecifierSet

Version = tuple[int, ...]

# Named where nothing else says which release to judge for.
NEWEST: Version = (0, 19)

# Every release on PyPI from the oldest to the newest known: those that `models.bin` was made from.
_PATCHES = {12: 4, 13: 2, 14: 1, 15: 4, 16: 2, 17: 2, 18: 3, 19: 3}
_NEVER_RELEASED = {"0.18.1", "0.19.1"}
_NUMBERED = [f"0.{minor}.{patch}" for minor, count in _PATCHES.items() for patch in range(count)]
RELEASES = tuple(name for name in _NUMBERED if name not in _NEVER_RELEASED)

_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?[a-z]\w*)*")


@cache
def parse_version(text: str) -> Version:
    """`0.19` as (0, 19), `0.19.2` or `v0.19.2` as (0, 19, 2); raises ValueError on anything else."""
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a megatron-core version; write it like 0.19 or 0.19.2")
    return tuple(int(number) for number in match.groups() if number)


def show(version: Version) -> str:
    """(0, 19) as `0.19`, (0, 19, 2) as `0.19.2`."""
    return ".".join(map(str, version))


def minor(version: Version) -> Version:
    """The minor version of a release."""
    return version[:2]


@cache
def releases_of(version: Version) -> tuple[str, ...]:
    """The known releases that a version means: one, or all of a minor version."""
    return tuple(name for name in RELEASES if parse_version(name)[: len(version)] == version)


def reached(version: Version) -> tuple[str, ...]:
    """The known releases up to a version; (0, 18) is the newest 0.18."""
    return tuple(name for name in RELEASES if parse_version(name)[: len(version)] <= version)


def allowed(specifiers: SpecifierSet) -> tuple[Version, ...]:
    """The oldest and the newest release that fit, once where they are the same; without a lower bound the newest."""
    from packaging.version import Version as Release

    named = [Release(specifier.version.removesuffix(".*")) for specifier in specifiers if specifier.operator != "==="]
    fitting = [version for version in map(Release, RELEASES) if specifiers.contains(version, prereleases=True)]
    if not fitting:  # one that is not known: older, newer, or never released
        fitting = sorted(version for version in named if specifiers.contains(version, prereleases=True))
    ends = [fitting[0], fitting[-1]] if fitting else []
    if not any(specifier.operator in {"==", ">=", ">", "~="} for specifier in specifiers):
        ends = ends[-1:]
    return tuple(dict.fromkeys((end.major, end.minor, end.micro) for end in ends))


ROOT = "megatron.core"
TRAINING = "megatron.training"
# What stands beside these in Megatron's repository, and in no wheel; other projects share the name `megatron`.
BESIDE = ("elastification", "inference", "legacy", "post_training", "rl")
PACKAGES = (ROOT, TRAINING, *(f"megatron.{name}" for name in BESIDE))
FOLDERS = ("core", "training", *BESIDE)  # below `megatron`
TRAINING_SINCE: Version = (0, 17)  # before, only a checkout of Megatron-LM has it
_BLOCK, _MTP = f"{ROOT}.transformer.transformer_block", f"{ROOT}.transformer.multi_token_prediction"
ITEM_CLASSES = {
    (f"{_BLOCK}.TransformerBlock", "layers"): f"{ROOT}.transformer.transformer_layer.TransformerLayer",
    (f"{_MTP}.MultiTokenPredictionBlock", "layers"): f"{_MTP}.MultiTokenPredictionLayer",
}
LIBRARY = Library("megatron-core", PACKAGES, ITEM_CLASSES)
# Modules that Megatron-LM had below `megatron` itself, before the releases that are known.
_FORMER = {"arguments", "checkpointing", "global_vars", "initialize", "model", "mpu", "optimizer", "tokenizer", "utils"}
_PREFIXES = tuple(f"{package}." for package in PACKAGES)
_NO_WHEEL = tuple(f"megatron.{name}." for name in BESIDE)


def within(name: str) -> bool:
    """Whether a dotted name is one of Megatron's."""
    return name.startswith(_PREFIXES) or name in PACKAGES


def is_former(name: str) -> bool:
    """Whether a dotted name is of a module that no release which is known has any more: `megatron.utils`."""
    package, _, rest = name.partition(".")
    return package == "megatron" and rest.partition(".")[0] in _FORMER


def is_in_no_wheel(name: str) -> bool:
    """Whether a dotted name is of a package that only a checkout of Megatron has."""
    return f"{name}.".startswith(_NO_WHEEL)
