"""Patches of names that Megatron no longer has: does the repository itself read what they set?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mcore_unpatch.findings.builders import leaf
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import replace
from mcore_unpatch.scanner.sources.parsing import Unreadable

_PLAIN = ("module-attr", "class-attr", "instance-attr")  # which do not name what they set as a text


def mark(
    findings: list[Finding],
    versions: Callable[[str], tuple[Version, ...]],
    paths: Iterable[str],
    read: Callable[[str], bytes],
) -> list[Finding]:
    """The findings, with which of the names that the judged releases lack some file reads; rather too many."""
    plain = (finding for finding in findings if finding.shape in _PLAIN)
    missing = {one for one in plain if all(known.is_gone(one.target, version) for version in versions(one.path))}
    names = {finding.target: _reads(finding.target) for finding in missing}
    found: set[str] = set()
    for path in paths if names else ():
        try:
            data = read(path)
        except (OSError, Unreadable):
            continue
        asked = (target for target in names.keys() - found if leaf(target).encode() in data)
        found.update([target for target in asked if names[target].search(data)])
    return [
        replace(one, assessment=replace(one.assessment, is_read=one in missing and one.target in found))
        for one in findings
    ]


def _reads(target: str) -> re.Pattern[bytes]:
    """`x.name` unless that is set, or is `self.name` for a module's; an import of it; a text that is just that."""
    owner, _, name = target.rpartition(".")
    is_class = leaf(owner)[:1].isupper()
    parts = (
        ("" if is_class else r"(?<!\bself)(?<!\bcls)") + r"\.[ \t]*{0}\b(?!\s*=[^=])",
        r"\bimport\b(?:[^\n(]|\\\n)*\b{0}\b",
        r"\bimport\s*\([^)]*\b{0}\b",
        r"[\"']{0}[\"']",
    )
    return re.compile("|".join(parts).format(re.escape(name)).encode())
