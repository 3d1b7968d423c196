"""A finding in words: what it does to what, what the releases do to it, and why it gets its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcore_unpatch.effects.records import Effect
from mcore_unpatch.effects.verdicts import Fate
from mcore_unpatch.findings.finding import SWITCH, Act, Finding, Live, OnStacks
from mcore_unpatch.say import verdicts
from mcore_unpatch.say.effects import NOT_PRINTED, sentence

_HOW = {
    "class-attr": "on the class",
    "class-of-instance": "on the class of an instance",
    "instance-attr": "on an instance",
    "setattr": "with setattr",
    "module-attr": "in its module",
    "sys-modules": "through sys.modules",
    "string-target": "by its dotted name",
    "source-rewrite": "with rewritten source",
    "mock": "with a mock",
}
_BRANCHES = {
    "if": "the condition on line {line} is false there",
    "else": "the condition on line {line} is true there",
    "after": "line {line} leaves before it",
    "except": "the import on line {line} does not fail there",
    "try": "the `try` on line {line} fails before it",
    "call": "it is called only where {where} allows it",
}
_MOST_CONDITIONS, _MOST_STACKS = 3, 4  # that are named
_REVIEW = "Review it as you review code; `--ignore MCU805` accepts it."


def message(finding: Finding) -> str:
    """What it does to what, what happens to it, and when it runs."""
    told = [finding.message] if finding.message else list(_act(finding))
    return "; ".join([*told, *breaks(finding), *_when(finding), *([finding.gain] if finding.gain else [])])


def breaks(finding: Finding) -> list[str]:
    """What the judged releases do to it, a sentence each, without its full stop."""
    shown = (one for one in finding.effects if one.kind not in NOT_PRINTED)
    return list(dict.fromkeys(_effect(one, finding) for one in shown))


def evidence(finding: Finding) -> str:
    """Why it gets its verdict."""
    if finding.shape == SWITCH:
        return _REVIEW
    told, row = finding.judgement, finding.row
    if told.fate == Fate.MOVES:
        safe = "" if finding.fix == "safe" else " --unsafe-fixes"
        return f"`unpatch migrate{safe}` rewrites it{f': {finding.replacement}' if row else ''}"
    words = {
        "way": finding.replacement or "",
        "name": told.name,
        "rule": finding.rule,
        "guard": _guard(finding),
        "live": str(finding.live),
    }
    said = verdicts.sentence(told, words)
    if left := finding.assessment.left_because.rstrip("."):
        done = {Fate.BY_HAND: "rewritten", Fate.GOES: "deleted"}.get(told.fate)
        said += f" Not {done}: {left}." if done else ""
    return said


def on_stacks(group: OnStacks) -> str:
    """Some stacks, what happens there, and what becomes of it so."""
    more = len(group.stacks) - _MOST_STACKS
    names = ", ".join(group.stacks[:_MOST_STACKS]) + (f" and {more} more" if more > 0 else "")
    if len(group.on) == 1:
        return f"{names}: {group.outcome}, so {group.verdict}"
    return f"{names}: " + ", ".join(f"on {one.release} it {one.outcome} ({one.fate})" for one in group.on)


def _act(finding: Finding) -> Iterator[str]:
    """What it does to what, and how sure that is."""
    possible = finding.confidence == "possible"
    short = ".".join(finding.target.split(".")[-1 if possible else -2 :])  # of which class is not known
    how = _HOW.get(finding.shape, "")
    words = {
        Act.REPLACES: f"replaces `{short}` {how}",
        Act.REMOVES: f"removes `{short}`",
        Act.ADDS: f"adds `{short}` {how}",
        Act.SWAPS: f"replaces the submodule `{short}`",
        Act.ALTERS: f"alters `{short}`",
    }
    yield words[finding.act].rstrip()
    if finding.confidence != "certain":
        yield f"{finding.confidence}, judging by " + ("the name of the method" if possible else "how it is used")


def _effect(effect: Effect, finding: Finding) -> str:
    """An effect in words; with the releases, where it is not on all of them."""
    said = sentence(effect).rstrip(".")
    judged = [one.release for one in finding.outcomes]
    on = [release for release in judged if release in effect.releases]
    return said if len(on) == len(judged) or not on else f"{said} (on {', '.join(on)})"


def _when(finding: Finding) -> Iterator[str]:
    """On which releases it is installed, where not on all, and what else that depends on."""
    live, judged = finding.live, [one.release for one in finding.outcomes]
    if judged and all(one.outcome == "never runs" for one in finding.outcomes):
        yield f"never runs on megatron-core {' or '.join(judged)}{elsewhere(live)}"
    elif str(live) != "any" and not finding.message:
        yield f"runs only on megatron-core {live}"
    yield from live.depends[:_MOST_CONDITIONS]
    more = len(live.depends) - _MOST_CONDITIONS
    if more > 0:
        yield f"{more} more condition{'s' * (more > 1)} above it"


def elsewhere(live: Live) -> str:
    """Where it runs, behind where it does not; what no known release has, an older or a newer one may have."""
    return f", only on {live}" if live.releases else ""


def _guard(finding: Finding) -> str:
    """What keeps a patch from running on the judged releases."""
    judged = {one.release for one in finding.outcomes}
    for guard in sorted(finding.live.guards, key=lambda guard: not guard.always):
        if judged <= set(guard.rules_out) or guard.always:
            words = _BRANCHES.get(guard.branch, _BRANCHES["after"])
            return words.format(line=guard.line, where=f"{guard.path}:{guard.line}")
    return f"the conditions around it leave {finding.live}"


def first_sentence(text: str) -> str:
    """The first sentence of a text for people."""
    return re.split(r"\. (?=[A-Z`])|; ", text)[0].rstrip(".")
