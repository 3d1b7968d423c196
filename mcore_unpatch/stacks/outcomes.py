"""What one patch does on each stack: where it runs, where it breaks, where it is not made at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mcore_unpatch.findings.finding import Finding, OnStacks
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.stacks.stack import Stack

RUNS, BREAKS, NEVER = "runs", "breaks", "never runs"


def on_stacks(
    finding: Finding, stacks: Iterable[Stack], verdict: Callable[[tuple[Version, ...]], str]
) -> tuple[OnStacks, ...]:
    """The stacks with the same outcome together; nothing where all that are known agree.

    `verdict` is that for some releases.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for stack in (stack for stack in stacks if stack.versions):
        groups.setdefault((_outcome(finding, stack, verdict), verdict(stack.versions)), []).append(stack.name)
    told = tuple(OnStacks(tuple(names), *group) for group, names in groups.items())
    return told if len(told) > 1 or any(on_stacks.outcome.startswith("depends") for on_stacks in told) else ()


def _outcome(finding: Finding, stack: Stack, verdict: Callable[[tuple[Version, ...]], str]) -> str:
    by_version = {version: (_on(finding, version), verdict((version,))) for version in stack.versions}
    if len(set(by_version.values())) == 1:
        return by_version[stack.versions[0]][0]
    said = ", ".join(f"on {show(version)} it {outcome} ({to})" for version, (outcome, to) in by_version.items())
    if stack.revision.is_range:
        return f"depends on the release: {said}"
    way = f"; to know, {stack.revision.settle}" if stack.revision.settle else ""
    return f"depends on the commit: {said}{way}"


def _on(finding: Finding, version: Version) -> str:
    if not finding.live.on(version):
        return NEVER
    return BREAKS if show(version) in finding.fails else RUNS
