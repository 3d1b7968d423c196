"""Patch files for people: one entry for each, its definitions gathered by what becomes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import api
from mcore_unpatch.report.lines import Line, count, wrapped

SHAPE = "patch-file"
_FATES = {"delete": "to delete", "steps": "by hand", "keep": "kept"}
_STYLES = {"delete": "green", "steps": "yellow"}
_INDENT = 4
_FEW = 3  # so many are told why one by one; JSON does it for all
_APPLIES = re.compile(r"; applies to (megatron-core [^\s;]+)")


def is_patch_file(findings: Sequence[Finding]) -> bool:
    """Whether the findings of a file are those of a patch file."""
    return findings[0].shape == SHAPE


def same(findings: Sequence[Finding]) -> tuple[object, ...]:
    """What two patch files have in common if one entry does for both."""
    told = ("target", "line", "rule", "message", "evidence", "steps", "related")
    return tuple(tuple(getattr(one, name) for name in told) for one in findings)


def entry(findings: Sequence[Finding]) -> Iterator[Line]:
    """What a patch file changes, and what becomes of it: first what can go, last what is kept."""
    yield from wrapped(_summary(findings), 2)
    for verdict, style in {**_STYLES, "keep": ""}.items():
        chosen = [one for one in findings if one.verdict == verdict]
        chosen.sort(key=_reason_of)  # stable: by line within one reason
        for reason, group in groupby(chosen, key=_reason_of):
            yield from _reason(verdict, style, reason, list(group))


def _summary(findings: Sequence[Finding]) -> str:
    rules = Counter(one.rule for one in findings)
    fates = Counter(one.verdict for one in findings)
    said = ", ".join(f"{fates[verdict]} {words}" for verdict, words in _FATES.items() if fates[verdict])
    modules = len({_module(one) for one in findings})
    what = f"{count(len(findings), 'change')} in {count(modules, 'module')} of Megatron: {said}"
    broken = sum(bool(one.breaks) for one in findings)
    fitting = [found[1] for one in findings if (found := _APPLIES.search(one.message))]
    applying = [f"{len(fitting)} {'applies' if len(fitting) == 1 else 'apply'} to {fitting[0]}"] if fitting else []
    applying += [f"{broken} no longer {'applies' if broken == 1 else 'apply'}"] if broken else []
    also = f". {', '.join(applying)}" if applying else ""
    tests = "; in a test" if findings[0].in_test else ""
    return f"{what}{also}{tests} ({', '.join(sorted(rules))})."


def _reason(verdict: str, style: str, reason: str, findings: list[Finding]) -> Iterator[Line]:
    yield from wrapped(reason, 2, f"{verdict}: ", style, hang=_INDENT)
    shared = [step for step in findings[0].steps if all(step in one.steps for one in findings)]
    if verdict == "steps" and (findings[0].steps != tuple(shared) or len(findings) == 1):
        for finding in findings:
            yield from wrapped(_place(finding), _INDENT)
            for number, step in enumerate(finding.steps, 1):
                if step not in shared or finding is findings[-1]:
                    yield from wrapped(f"{number}. {step}", _INDENT + 2)
        return
    if verdict == "keep" and len(findings) <= _FEW and all(one.evidence != reason for one in findings):
        for finding in findings:
            yield from wrapped(f"{_place(finding)}: {finding.evidence.removeprefix(reason).strip()}", _INDENT, hang=6)
        return
    for detail, group in groupby(sorted(findings, key=_detail), key=_detail):
        said = f"{detail}: " if detail else ""
        yield from wrapped(said + ", ".join(map(_place, group)), _INDENT, hang=_INDENT + (2 if detail else 0))
    for number, step in enumerate(shared if verdict == "steps" else (), 1):
        yield from wrapped(f"{number}. {step}", _INDENT + 2)


def _reason_of(finding: Finding) -> str:
    """Why, in words that are the same for many."""
    return f"{finding.stays}." if finding.verdict == "keep" and finding.stays else finding.evidence


def _detail(finding: Finding) -> str:
    """Why exactly its hunks no longer apply."""
    return finding.breaks[0].partition(": ")[2] if finding.breaks and finding.verdict == "keep" else ""


def _module(finding: Finding) -> str:
    """The module of what is changed; a file that the patch adds is none that is known."""
    name = finding.target
    while name and ((symbol := api.lookup(name)) is None or symbol.kind != "module"):
        name = name.rpartition(".")[0]
    return name if name and finding.target != name else finding.target


def _place(finding: Finding) -> str:
    """`Class.method (12, 40)`: what is changed, and the lines of the patch file where its hunks begin."""
    parts = finding.target.split(".")
    short = 2 if len(parts) > 1 and parts[-2].lstrip("_")[:1].isupper() else 1
    name = ".".join(parts[-short:])
    lines = [finding.line, *(item.line for item in finding.related)]
    return f"{name} ({', '.join(map(str, lines))})"
