"""Where a repository makes the specs of its layers: the lines that steps about a ModuleSpec are for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import STEPS
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsing import Unreadable

RULE = "MCU402"
_MAKERS = re.compile(rb"\b(get_\w*_specs?\w*|ModuleSpec)\b(?:\s+as\s+(\w+))?")
_MOST_SHOWN = 2

Place = tuple[str, int, str]  # file, line, what is called


def told(findings: list[Finding], paths: Iterable[str], project: Project, shown: Callable[[str], str]) -> list[Finding]:
    """The findings, those that a ModuleSpec answers with one step more, if the repository makes specs."""
    if not any(map(_asks, findings)):
        return findings
    places = [place for path in paths if not is_test(path) for place in _in(path, project)]
    if not places:
        return findings
    return [replace(one, steps=(*one.steps, _step(one, places, shown))) if _asks(one) else one for one in findings]


def _asks(finding: Finding) -> bool:
    return finding.rule == RULE and finding.verdict == STEPS and bool(finding.steps)


def _in(path: str, project: Project) -> list[Place]:
    """The calls of Megatron's spec functions and of `ModuleSpec` in a file."""
    try:
        data = project.data(path)
        names = {(match[2] or match[1]).decode() for match in _MAKERS.finditer(data)} if b"megatron" in data else ()
        if not names:
            return []
        project.begin()
        resolver = project.resolver(path)
        calls = [call for name in sorted(names) for call in resolver.calls_of(name)]
        found = {
            (path, call.lineno, made.name.rpartition(".")[2])
            for call, at in calls
            if (made := at.expr(call.func)) is not None and made.is_core
        }
    except (OSError, Unreadable, RecursionError):
        return []
    return sorted(found)


def _step(finding: Finding, places: list[Place], shown: Callable[[str], str]) -> str:
    """The files with such places, the nearest to a finding first, each with its first line."""
    first: dict[str, tuple[int, str]] = {}
    for path, line, name in places:
        first.setdefault(path, (line, name))
    near = sorted(first, key=lambda path: (-len(os.path.commonpath([path, finding.path])), path))
    said = [f"{shown(path)}:{first[path][0]} (`{first[path][1]}`)" for path in near[:_MOST_SHOWN]]
    more = len(near) - len(said)
    others = f" and {more} more {'file' if more == 1 else 'files'}" if more else ""
    return f"Specs are made here: {', '.join(said)}{others}."
