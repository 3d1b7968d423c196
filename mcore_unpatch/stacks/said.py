"""What a file says of Megatron: the values that all readers of files give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mcore_unpatch.stacks.revision import CARRIER, Revision, carried, of_reference, of_release, of_specifiers

NAME = r"megatron[-_.]core"
_REQUIREMENT = re.compile(
    rf"""(?<![-\w./]){NAME}(?![-_.\w/])\s*+(?:\[[^\]]{{0,500}}+\])?\s*+\(?((?:\s*+[=<>!~]=?=?\s*+[\w.*+!]++\s*+,?)++)""",
    re.IGNORECASE,
)
_CARRIER = re.compile(
    rf"""(?<![-\w./]){CARRIER}\s*+(?:\[[^\]]{{0,500}}+\])?\s*+((?:[=~]=|[<>]=?)\s*+\d[\w.*+!]*+)""", re.IGNORECASE
)
_SETTLE = "name the one that it brings with --target-mcore, or with `megatron` in [tool.unpatch]"
# The name of a repository that is Megatron-LM or a fork of it, as far as its name tells.
REPOSITORY = r"(?:(?:https?|ssh|git)://[^\s\"'@]{0,200}?[/:]|git@[\w.-]+:|(?<![\w/.-]))?([\w.-]+)/((?:\w+-)?megatron-lm[\w-]*)(?:\.git)?"
_GIT = re.compile(rf"(?:git\+|@\s*git\+){REPOSITORY}/?(?:@([^\s\"'#;,&)]+))?", re.IGNORECASE)
_DIRECT = re.compile(
    rf"{NAME}(?:\[[^\]]{{0,500}}+\])?\s*+@\s*git\+\S{{0,200}}?[/:]([\w.-]{{1,100}}/[\w-]{{1,100}}?)(?:\.git)?"
    r"@([^\s\"'#;,&)]+)",
    re.IGNORECASE,
)
_WHEEL = re.compile(r"megatron_core-(\d[\w.+]*?)-[\w.]+-[\w.]+-[\w.]+\.whl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """One place where a file says which Megatron it is for."""

    path: str
    line: int
    revision: Revision
    source: str  # what kind of file says so
    platform: str = ""
    scope: str = ""  # the folder that it speaks for

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


@dataclass(slots=True)
class ReadFile:
    """One file, and what its reader finds in it, line by line."""

    top: Path
    path: str
    text: str
    modules: str  # the `.gitmodules` of the repository
    found: list[tuple[int, Revision]] = field(default_factory=list)
    optional: list[tuple[int, Revision]] = field(default_factory=list)  # in extras and groups
    notes: list[tuple[int, str]] = field(default_factory=list)  # what cannot be told
    images: list[str] = field(default_factory=list)  # what the stages of a Dockerfile start from


def in_text(text: str) -> Iterator[tuple[int, Revision]]:
    """Every Megatron that a text asks pip for, and where in it: by version, by git, or by the file of a wheel."""
    direct = {match.start(2): match for match in _DIRECT.finditer(text)}
    for match in direct.values():
        yield match.start(), of_reference(match[2], match[1])
    for match in _GIT.finditer(text):
        if match.start(3) not in direct:
            yield match.start(), of_reference(match[3] or "", f"{match[1]}/{match[2]}")
    for match in _REQUIREMENT.finditer(text):
        if (revision := of_specifiers(match[1])) is not None:
            yield match.start(), revision
    for match in _CARRIER.finditer(text):
        yield match.start(), carried(f"megatron-bridge{match[1]}", "megatron-bridge", _SETTLE, is_weak=True)
    for match in _WHEEL.finditer(text):
        if (revision := of_release(match[1])) is not None:
            yield match.start(), revision
