"""Patches that calls of Megatron's break which the repository may never make: a subclass of its own has the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge.handed_over import HandedOver

OVERRIDDEN = "which may be all that runs"


def mark(findings: list[Finding], given: Callable[[], HandedOver]) -> list[Finding]:
    """The findings, those that break only where a class of Megatron's own is built as such that may break."""
    return [_marked(one, given()) if one.effect == "breaks" and one.callers else one for one in findings]


def _marked(finding: Finding, given: HandedOver) -> Finding:
    names = [caller.rpartition(".")[::2] for caller in finding.callers]
    if not all(given.shuts_out(*name) for name in names):
        return finding
    owner, method = names[0]
    said = f"a subclass of `{owner.rpartition('.')[2]}` here has its own `{method}`, {OVERRIDDEN}"
    message = finding.message.replace(last := finding.breaks[-1], f"{last}; {said}")
    return replace(finding, effect="may_break", breaks=(*finding.breaks, said), message=message)
