"""Patches that raise where the repository may have put something of its own: another caller, or what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge.handed_over import HandedOver


def mark(findings: list[Finding], given: Callable[[], HandedOver]) -> list[Finding]:
    """The findings, those that break only where Megatron's own is at work as such that may break."""
    beside = {(one.path, one.scope, one.target): one.line for one in findings}
    for_good = [one for one in findings if not (one.in_test or one.temporary or one.confidence == "possible")]
    replaced = {one.target: one for one in for_good if not one.hands_on}
    return [_marked(one, given, beside, replaced) if one.effect == "breaks" else one for one in findings]


def _marked(
    finding: Finding,
    given: Callable[[], HandedOver],
    beside: dict[tuple[str, str, str], int],
    replaced: dict[str, Finding],
) -> Finding:
    said = _caller(finding, given, beside) or _asked(finding, replaced)
    if not said:
        return finding
    message = finding.message.replace(last := finding.breaks[-1], f"{last}; {said}")
    told = replace(finding.assessment, overridden=said)
    return replace(finding, effect="may_break", breaks=(*finding.breaks, said), message=message, assessment=told)


def _caller(finding: Finding, given: Callable[[], HandedOver], beside: dict[tuple[str, str, str], int]) -> str:
    """What may run in place of the callers that break it."""
    names = [caller.rpartition(".")[::2] for caller in finding.callers]
    if not names:
        return ""
    owner, method = names[0]
    short, lines = owner.rpartition(".")[2], [beside.get((finding.path, finding.scope, one)) for one, _ in names]
    if all(lines):
        return f"line {lines[0]} puts another class in place of `{short}`, which may be all that runs"
    own = f"a subclass of `{short}` here has its own `{method}`, which may be all that runs"
    return own if all(given().shuts_out(*name) for name in names) else ""


def _asked(finding: Finding, replaced: dict[str, Finding]) -> str:
    """What may be in place of what it asks for, by itself or with its class."""
    ways = [(name, name.rpartition(".")[0]) for name in finding.asked]
    others = [next((replaced[one] for one in way if one in replaced), finding) for way in ways]
    if not others or any(one.target == finding.target for one in others):
        return ""
    first = others[0]
    where = f"line {first.line}" if first.path == finding.path else f"{first.path}:{first.line}"
    return f"{where} replaces `{first.target.rpartition('.')[2]}`, which may be what is reached"
