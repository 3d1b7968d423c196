"""Patches of names that nobody reads: nothing of Megatron on the judged releases, and nothing of the repository.

Other packages may read it too, an old name above all: it has to be one that a release no longer has there or a private
one, and the same value is set in another place, so that this is a copy of a patch and not a name kept alive for others.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mcore_unpatch.findings.finding import Assessment, Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.mentions import mentions
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner.sources.parsing import Unreadable

_NAME_GIVEN = re.compile(r"[^=(]+\.\w+ = ([^\W\d][\w.]*)")
# What takes names from a module without saying them.
_TAKES_ALL = re.compile(rb"import\s*\(?\s*\*|getattr|__dict__|vars\(|sys\.modules|import_module|__import__")
_OWN = ("unpatch.lock", "unpatch.baseline", ".mcore-unpatch-baseline")  # the lock and the baselines


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """The files of a repository: its own code, Megatron carried along and changes of it, and all others."""

    own: Iterable[str]
    megatron: Iterable[str]
    settings: Iterable[str]
    read: Callable[[str], bytes]


def mark(
    findings: list[Finding], versions: Callable[[str], tuple[Version, ...]], files: Callable[[], RepositoryFiles]
) -> list[Finding]:
    """The findings, with what is known of who reads the names that Megatron does not read or no longer has."""
    copies = _copies(findings)
    unread = {
        finding
        for finding in findings
        if finding in copies
        and not finding.patches_more
        and finding.confidence == "certain"
        and _is_left_alone(finding, versions(finding.path))
    }
    missing = {finding for finding in findings if _is_missing(finding, versions(finding.path))}
    asked = {finding.target for finding in unread | missing}
    if not asked:
        return findings
    try:
        left = _unread(files(), asked)
    except (OSError, SyntaxError, ValueError, RecursionError, Unreadable):
        left = set()  # what cannot be read may read anything
    return [
        replace(
            finding,
            assessment=Assessment(
                unread=copies[finding] if finding in unread and finding.target in left else 0,
                is_read=finding in missing and finding.target not in left,
            ),
        )
        for finding in findings
    ]


def _is_missing(finding: Finding, versions: tuple[Version, ...]) -> bool:
    """Whether all of the judged releases lack a name, and the assignment that sets it does not name it as a text."""
    plain = finding.shape in ("module-attr", "class-attr", "instance-attr")
    return plain and all(known.is_gone(finding.target, version) for version in versions)


def _copies(findings: list[Finding]) -> dict[Finding, int]:
    """Assignments to a module of a name that is set elsewhere in the file too: the line that does so."""
    values = defaultdict[tuple[str, str], list[Finding]](list)
    for finding in findings:
        if given := _NAME_GIVEN.fullmatch(finding.source.strip()):
            values[finding.path, given[1]].append(finding)
    return {
        finding: other.line
        for same in values.values()
        for finding in same
        for other in same
        if finding.shape == "module-attr" and other.target != finding.target and other.line != finding.line
    }


def _is_left_alone(finding: Finding, versions: tuple[Version, ...]) -> bool:
    """Whether it runs, nothing of the judged releases reads the name, and it is private or no longer there."""
    releases = [known.newest(version) for version in versions]
    if not known.ever(finding.target) or not any(map(finding.live.on, versions)):
        return False
    facts = [release.facts.get(finding.target) for release in releases]
    unread = all(fact is None or fact.trait("unread") is not None for fact in facts)
    return unread and (_leaf(finding.target).startswith("_") or not any(facts))


def _unread(files: RepositoryFiles, targets: set[str]) -> set[str]:
    """The names that no file may read: as code, or by a text where the module is handed on."""
    left = {target: target.rpartition(".")[::2] for target in targets}
    for path in files.megatron:
        data = files.read(path)
        left = {target: (of, name) for target, (of, name) in left.items() if name.encode() not in data}
    for path in files.settings:  # they have to name the module too; what this tool wrote names what is patched
        data = files.read(path) if not path.rpartition("/")[2].startswith(_OWN) else b""
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
