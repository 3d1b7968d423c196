"""Known findings as counts per file and rule: moved lines do not matter, and a count that fell is reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import SWITCH, Finding
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.paths import relative, shown

Counts = dict[str, dict[str, int]]


def load(file: Path) -> Counts:
    """Read a baseline; raises `UsageError` with what is wrong with it."""
    try:
        return parse(reading.read(file), file)
    except FileNotFoundError:
        raise UsageError(f"no baseline at {shown(file)}; create it with `unpatch check --write-baseline`") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None


def parse(text: bytes, file: Path) -> Counts:
    """The same of the bytes of one."""
    try:
        data = json.loads(text.decode())
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a number of thousands of digits
        raise UsageError(f"{shown(file)} is not a baseline: {error}") from None
    counts = data.get("counts") if isinstance(data, dict) else None
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(counts, dict):
        raise UsageError(f"{file} is not a baseline of version 1; recreate it with `unpatch check --write-baseline`")
    for path, rules in counts.items():
        if not isinstance(rules, dict) or not all(type(n) is int and n > 0 for n in rules.values()):
            raise UsageError(f"{file}: the counts of {path} must be positive numbers per rule")
    return counts


def write(file: Path, findings: list[Finding], root: Path) -> None:
    """Write the counts of these findings, sorted; the file is replaced at once or not at all, never through a link."""
    if file.is_symlink():
        raise UsageError(f"{shown(file)} is a link: name the file itself with --baseline")
    counts: Counts = {}
    for (path, rule), n in sorted(Counter((_key(finding, root, file), finding.rule) for finding in findings).items()):
        counts.setdefault(path, {})[rule] = n
    reading.replace_file(file, json.dumps({"version": 1, "counts": counts}, indent=2) + "\n")


def subtract(
    findings: list[Finding], counts: Counts, file: Path, root: Path, scanned: set[str], others: Iterable[Finding] = ()
) -> tuple[list[Finding], list[str]]:
    """(findings beyond the baseline, sentences on what it allows that is no longer there).

    Within one file and rule the last findings are the new ones. Files that were not scanned are not held against it.
    `others` are findings that are not asked about, and that the baseline was written for too.
    """
    left = {(path, rule): n for path, rules in counts.items() for rule, n in rules.items()}
    for finding in others:
        key = (_key(finding, root, file), finding.rule)
        if left.get(key):
            left[key] -= 1
    new = []
    for finding in findings:
        key = (_key(finding, root, file), finding.rule)
        if left.get(key) and finding.shape != SWITCH:
            left[key] -= 1
        else:
            new.append(finding)
    surplus = []
    for (path, rule), n in left.items():
        there = file.parent / path
        if n and (relative(there, root) in scanned or not there.exists()):
            more = f"The baseline allows {n} more {rule} in {path} than exist"
            surplus.append(f"{more}; run `unpatch check --write-baseline`.")
    return new, sorted(surplus)


def added(
    file: Path, top: Path, revisions: Iterable[str], renamed: Mapping[str, str], before: Iterable[Finding]
) -> Counts:
    """What a change accepts with a baseline of its own repository: neither accepted nor there at the revisions.

    `before` are the findings of these; `renamed` maps a path of now to its old one.
    """
    known: list[Counts] = []
    for revision in revisions:
        with suppress(UsageError):
            known.append(parse(git.file_at(top, revision, relative(file.resolve(), top)) or b"", file))
    there = Counter((finding.path, finding.rule) for finding in before)
    folder = relative(file.resolve().parent, top)
    prefix = "" if folder == "." else f"{folder}/"
    more: Counts = {}
    for path, rules in load(file).items():
        old = renamed.get(prefix + path, prefix + path).removeprefix(prefix)
        for rule, count in rules.items():
            accepted = [counts.get(name, {}).get(rule, 0) for counts in known for name in (path, old)]
            if (beyond := count - max(there[prefix + old, rule], *accepted, 0)) > 0:
                more.setdefault(path, {})[rule] = beyond
    return more


def _key(finding: Finding, root: Path, file: Path) -> str:
    """Paths in a baseline are relative to the folder it stands in, wherever the scan began."""
    return relative(root / finding.path, file.parent)
