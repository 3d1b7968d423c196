"""Patches that calls of Megatron's break which the repository may never make: it has another caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge.handed_over import HandedOver


def mark(findings: list[Finding], given: Callable[[], HandedOver]) -> list[Finding]:
    """The findings, those that break only where a class of Megatron's own is built as such that may break."""
    lines = {(one.path, one.scope, one.target): one.line for one in findings}
    return [_marked(one, given, lines) if one.effect == "breaks" and one.callers else one for one in findings]


def _marked(finding: Finding, given: Callable[[], HandedOver], lines: dict[tuple[str, str, str], int]) -> Finding:
    names = [caller.rpartition(".")[::2] for caller in finding.callers]
    owner, method = names[0]
    short, beside = owner.rpartition(".")[2], [lines.get((finding.path, finding.scope, one)) for one, _ in names]
    if all(beside):
        who = f"line {beside[0]} puts another class in place of `{short}`"
    elif all(given().shuts_out(*name) for name in names):
        who = f"a subclass of `{short}` here has its own `{method}`"
    else:
        return finding
    said = f"{who}, which may be all that runs"
    message = finding.message.replace(last := finding.breaks[-1], f"{last}; {said}")
    told = replace(finding.assessment, overridden=said)
    return replace(finding, effect="may_break", breaks=(*finding.breaks, said), message=message, assessment=told)
