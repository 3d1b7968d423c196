"""Patches of names that nobody reads: nothing of Megatron on the judged releases, and nothing of the repository.

Only names that no other package is after either: those that a release no longer has in that place, and private ones.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import uses
from mcore_unpatch.megatron.mentions import mentions
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner.sources.parsing import Unreadable

# What takes names from a module without saying them.
_TAKES_ALL = re.compile(rb"import\s*\(?\s*\*|getattr|__dict__|vars\(|sys\.modules|import_module|__import__")


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a repository: its own code, Megatron carried along and changes of it, and all others."""

    own: Iterable[str]
    megatron: Iterable[str]
    settings: Iterable[str]
    read: Callable[[str], bytes]


def mark(
    findings: list[Finding], versions: dict[str, tuple[Version, ...]], files: Callable[[], Files]
) -> list[Finding]:
    """The findings, those marked that have no effect because nobody reads what they set."""
    candidates = [
        one
        for one in findings
        if one.shape == "module-attr" and one.confidence == "certain"
        if _is_left_alone(one, versions[one.path])
    ]
    if not candidates:
        return findings
    try:
        left = _unread(files(), {one.target for one in candidates})
    except (OSError, SyntaxError, ValueError, RecursionError, Unreadable):
        return findings  # what cannot be read may read anything
    return [replace(one, unread=True) if one in candidates and one.target in left else one for one in findings]


def _is_left_alone(finding: Finding, versions: tuple[Version, ...]) -> bool:
    """Whether it runs, nothing of the judged releases reads the name, and other packages have no reason to."""
    line = uses.known(finding.target)
    if line is None or not any(map(finding.live.on, versions)):
        return False
    unread = all(line.on(version).is_unread for version in versions)
    return unread and (_leaf(finding.target).startswith("_") or not any(map(line.is_on, versions)))


def _unread(files: Files, targets: set[str]) -> set[str]:
    """The names that no file may read: as code, or by a text where the module is handed on."""
    left = {target: target.rpartition(".")[::2] for target in targets}
    for path in files.megatron:
        data = files.read(path)
        left = {target: (of, name) for target, (of, name) in left.items() if name.encode() not in data}
    for path in files.settings:  # they have to name the module too
        data = files.read(path)
        left = {target: of for target, of in left.items() if any(_leaf(word).encode() not in data for word in of)}
    named, around = set[str](), defaultdict[str, list[str]](list)
    for path in files.own:
        data = files.read(path)
        known = {target for target, (_, name) in left.items() if name.encode() in data}
        near = {target for target, (of, _) in left.items() if _leaf(of).encode() in data and b"megatron" in data}
        for target in near:
            around[target].append(path)
        if known or (near and _TAKES_ALL.search(data)):
            here = mentions(ast.parse(data))
            left = {target: of for target, of in left.items() if not here.may_read(*of)}
            named |= {target for target, (_, name) in left.items() if here.names_in_text(name)}
    return {
        target
        for target, (of, _) in left.items()
        if target not in named
        or not any(mentions(ast.parse(files.read(path))).may_hand_on(of) for path in around[target])
    }


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
