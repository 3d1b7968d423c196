"""Patches of names that nobody reads: nothing of Megatron on the judged releases, and nothing of the repository.

Other packages may read it too, an old name above all: it has to be one that a release no longer has there or a private
one, and the same value is set in another place, so that this is a copy of a patch and not a name kept alive for others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from mcore_unpatch.findings.builders import leaf
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import record, replace
from mcore_unpatch.scanner.sources.parsing import Unreadable

_NAME_GIVEN = re.compile(r"[^=(]+\.\w+ = ([^\W\d][\w.]*)")
_TAKES = re.compile(rb"import\s*+\(?\s*+\*|\.__dict__|vars\(|getattr\(")
_SETS = re.compile(rb"[ \t]*(\w+)[ \t]*=")
OWN = ("unpatch.lock", "unpatch.baseline")  # the lock and the baselines


@record
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
            assessment=replace(
                finding.assessment,
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
    unknown = any(known.lacking(release, finding.target) for release in releases)  # it is in no wheel: nobody read it
    return unread and not unknown and (leaf(finding.target).startswith("_") or not any(facts))


def _unread(files: RepositoryFiles, targets: set[str]) -> set[str]:
    """The names that no file may read, told by its bytes: rather too few than too many."""
    pairs = (target.rpartition(".")[::2] for target in targets)
    left = {f"{owner}.{name}": (leaf(owner).encode(), name.encode(), _reads(owner, name)) for owner, name in pairs}
    looks: tuple[tuple[Iterable[str], Callable[[bytes, bytes, bytes, re.Pattern[bytes]], object]], ...] = (
        (files.megatron, lambda data, _, name, __: name in data),
        (files.settings, lambda data, owner, name, _: owner in data and name in data),  # which name the module too
        (files.own, lambda data, owner, name, reads: (name in data and reads.search(data)) or _takes_all(data, owner)),
    )
    for paths, is_read in looks:
        for path in paths:
            if not left:
                return set()
            # What this tool wrote names what is patched.
            data = files.read(path) if not path.rpartition("/")[2].startswith(OWN) else b""
            left = {target: of for target, of in left.items() if not is_read(data, *of)}
    return set(left)


def _takes_all(data: bytes, module: bytes) -> bool:
    """Whether a file takes names from a module, by whatever name it has it, without saying them."""
    if module not in data or b"megatron" not in data or _TAKES.search(data) is None:
        return False
    names = {module}
    for said in re.finditer(rb"%b(?<!\w%b)\b(?:\s+as\s+(\w+))?" % (module, module), data):
        line = data.rfind(b"\n", 0, said.start()) + 1
        names |= {match[1] for match in (said, _SETS.match(data, line, said.start())) if match and match[1]}
    named = rb"\b(?:%b)" % b"|".join(names)
    takes = rb"\bfrom[\w.\s]*\b%b\s+import\s*\(?\s*\*|%b\.__dict__|vars\([\w.]*%b\)|getattr\([\w.]*%b\s*,\s*[^\"'\s]"
    return re.search(takes % (module, named, named, named), data) is not None


def _reads(owner: str, name: str) -> re.Pattern[bytes]:
    """`x.name` unless that is set, or is `self.name` for a module's; an import of it; a text that is just that."""
    is_class = leaf(owner)[:1].isupper()
    parts = (
        ("" if is_class else r"(?<!\bself)(?<!\bcls)") + r"\.[ \t]*{0}\b(?!\s*=[^=])",
        r"\bimport\b(?:[^\n(]|\\\n)*\b{0}\b",
        r"\bimport\s*\([^)]*\b{0}\b",
        r"[\"']{0}[\"']",
    )
    return re.compile("|".join(parts).format(re.escape(name)).encode())
