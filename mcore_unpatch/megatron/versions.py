"""Megatron Core versions: reading them, comparing them, and what a repository pins."""

from __future__ import annotations

import re
from collections.abc import Iterable

Version = tuple[int, int]

# Named where nothing else says which release to judge for.
NEWEST: Version = (0, 19)
OLDEST: Version = (0, 12)

_REQUIREMENT = re.compile(
    r"""\bmegatron[-_.]core(?![-_.\w/])\s*(?:\[[^\]]*\])?\s*((?:[=<>!~]=?=?\s*[\w.*+!]+\s*,?\s*)+)"""
)
_TAG = re.compile(r"megatron.{0,80}?@(?:core_)?[vr](\d+)\.(\d+)", re.IGNORECASE)
_CLAUSE = re.compile(r"([=<>!~]=?=?)\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def parse_version(text: str) -> Version:
    """`0.19`, `0.19.2` or `v0.19` as (0, 19); raises ValueError on anything else."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\w+)*", text.strip())
    if match is None:
        raise ValueError(f"not a megatron-core version: {text!r} (write it like 0.19 or 0.19.2)")
    return int(match[1]), int(match[2])


def show(version: Version) -> str:
    """(0, 19) as `0.19`."""
    return f"{version[0]}.{version[1]}"


def pinned(text: str) -> Version | None:
    """The newest release that the requirements in a text allow, if it pins megatron-core at all."""
    if tag := _TAG.search(text):
        return int(tag[1]), int(tag[2])
    for match in _REQUIREMENT.finditer(text):
        clauses = [
            # `~=0.17.1` stays within 0.17, `~=0.17` within 0.
            ("==" if op == "~=" and patch else op, (int(major), int(minor or 0)))
            for op, major, minor, patch in _CLAUSE.findall(match[1])
        ]
        allowed = [v for v in _known() if all(_holds(op, v, bound) for op, bound in clauses)]
        if clauses and allowed:
            return allowed[-1]
    return None


def _known() -> Iterable[Version]:
    return [(0, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]


def _holds(operator: str, version: Version, bound: Version) -> bool:
    match operator:
        case "==" | "===":
            return version == bound
        case ">=" | ">":
            return version >= bound
        case "<=":
            return version <= bound
        case "<":
            return version < bound
        case "~=":
            return version >= bound and version[0] == bound[0]
    return True
