"""What becomes of each finding: rewritten, deleted, done by hand in steps, or kept; and the evidence for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence, Set
from dataclasses import replace
from functools import cache
from typing import Any

from mcore_unpatch.findings import reasons
from mcore_unpatch.findings.finding import Finding, OnStacks
from mcore_unpatch.library.fact import quoted
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.versions import NEWEST, RELEASES, Version, releases_of, show
from mcore_unpatch.stacks.revision import Judged, Stack

ON_OBJECTS = ("instance-attr", "submodule", "setattr", "class-of-instance")
REWRITE, DELETE, STEPS, KEEP = "rewrite", "delete", "steps", "keep"
DONE = "done"  # the official way stands beside it already
_CONSTANT = re.compile(r"[=,]\s*\(?\s*lambda[^:]*:\s*(None|True|False|[\d.]+|'[^']*'|\"[^\"]*\")[\s)]*$")
_BRANCHES = {
    "if": "the condition on line {line} is false there",
    "else": "the condition on line {line} is true there",
    "after": "line {line} leaves before it",
    "except": "the import on line {line} does not fail there",
    "try": "the `try` on line {line} fails before it",
    "call": "it is called only where {where} allows it",
}


def settled(findings: Iterable[Finding], judged: dict[str, Judged], guessed: Container[str] = ()) -> list[Finding]:
    """The findings with their verdicts; `judged` are the stacks that each path is judged for.

    Of a path whose releases are `guessed` a branch for others may be the one that runs: it is not to be deleted.
    """
    beside: dict[str, set[str]] = {}
    for finding in (findings := list(findings)):
        beside.setdefault(finding.path, set()).add(finding.target)
    return _together([_settled(one, judged[one.path], one.path in guessed, beside[one.path]) for one in findings])


def on_stacks(finding: Finding, stacks: Sequence[Stack], again: bool = False) -> Finding:
    """A finding with what becomes of it on each stack, where that is not the same on all that are known."""
    same = again and finding.fix is None and finding.effect != "may_break"  # as it was without a fix
    if same or (len(stacks) == 1 and len(stacks[0].versions) < 2):
        return finding

    @cache
    def verdict(versions: tuple[Version, ...], is_older: bool = False) -> str:
        return _row(_Seen(finding, versions, is_older=is_older))[0]

    @cache  # most stacks have the same releases
    def seen(version: Version) -> tuple[str, str]:
        unread = known.lacking(known.newest(version), finding.target)
        breaks = "may break" if finding.effect == "may_break" else "breaks"
        outcome = breaks if show(version) in finding.fails else "is not known" if unread else "runs"
        return outcome if finding.live.on(version) else "never runs", verdict((version,))

    groups: dict[tuple[str, str], list[str]] = {}
    for stack in (stack for stack in stacks if stack.versions):
        group = _outcome(stack, seen), verdict(stack.versions, stack.revision.is_older)
        groups.setdefault(group, []).append(stack.name)
    told = tuple(OnStacks(tuple(names), *group) for group, names in groups.items())
    differs = len(told) > 1 or any(group.outcome.startswith("depends") for group in told)
    assessment = replace(finding.assessment, on_stacks=told if differs else ())
    # Of a commit between two releases it is not known whether it does what one of them does.
    hit = [stack.revision for stack in stacks if not set(finding.fails).isdisjoint(stack.revision.releases)]
    is_open = bool(hit) and not any(one.is_range or set(finding.fails).issuperset(one.releases) for one in hit)
    return replace(finding, assessment=assessment, effect="may_break" if is_open else finding.effect)


def _outcome(stack: Stack, seen: Callable[[Version], tuple[str, str]]) -> str:
    by_version = {version: seen(version) for version in stack.versions}
    if len(set(by_version.values())) == 1:
        return by_version[stack.versions[0]][0]
    said = ", ".join(f"on {show(version)} it {outcome} ({to})" for version, (outcome, to) in by_version.items())
    if stack.revision.is_range:
        return f"depends on the release: {said}"
    way = f"; to know, {stack.revision.settle}" if stack.revision.settle else ""
    return f"depends on the commit: {said}{way}"


def _together(findings: list[Finding]) -> list[Finding]:
    """One statement that patches several names is deleted only if it is for all of them."""
    needed: dict[tuple[str, int, int], Finding] = {}
    for finding in findings:
        if finding.verdict != DELETE:
            needed.setdefault((finding.path, finding.line, finding.column), finding)

    def said(finding: Finding) -> Finding:
        other = needed.get((finding.path, finding.line, finding.column))
        if finding.verdict != DELETE or other is None:
            return finding
        name = ".".join(other.target.split(".")[-2:])
        return _decided(finding, KEEP, f"{finding.evidence} Line {finding.line} stays for `{name}`.")

    return [said(finding) for finding in findings]


def _settled(finding: Finding, judged: Judged, guessed: bool, beside: Set[str] = frozenset()) -> Finding:
    case = _Seen(finding, judged.versions, guessed, any(stack.revision.is_older for stack in judged.stacks))
    case.beside = beside
    verdict, words = _row(case)
    evidence = words.format(case)
    left = finding.assessment.left_because.rstrip(".")
    if left and verdict in {STEPS, DELETE}:
        evidence += f" Not {'rewritten' if verdict == STEPS else 'deleted'}: {left}."
    return _decided(finding, verdict, evidence, case.waits_for if verdict == KEEP else "")


def _row(case: _Seen) -> tuple[str, str]:
    """The verdict, and the words for it, which are filled in only where they are said."""
    return next((verdict, words) for holds, verdict, words in _TABLE if holds(case))


def _decided(finding: Finding, verdict: str, evidence: str, waits_for: str = "") -> Finding:
    told = replace(finding.assessment, verdict=verdict, evidence=evidence, waits_for=waits_for)
    return replace(finding, assessment=told)


class _Seen:
    """One finding, the releases it is judged for, and the row of what is known that speaks for it."""

    beside: Set[str] = frozenset()  # what else its file replaces

    def __init__(
        self, finding: Finding, versions: tuple[Version, ...], guessed: bool = False, is_older: bool = False
    ) -> None:
        self.finding, self.versions, self.live, self.guessed = finding, versions, finding.live, guessed
        self.least = (0, 0) if is_older else min(versions)
        self.row: Answer | None = next((answer for answer in answers() if answer.name == finding.answer), None)

    # --- questions of the table ----------------------------------------------------------------------------------

    def never_runs(self) -> bool:
        """Not on the releases that it is judged for."""
        return bool(self.versions) and not any(map(self.live.on, self.versions))

    def is_for_later(self) -> bool:
        """It runs on no release that is known."""
        return self.never_runs() and not self.live.releases

    def is_off(self) -> bool:
        """It runs on no release at all: `if False:`, a switch that is off."""
        return self.is_for_later() and any(guard.always and guard.rules_out for guard in self.live.guards)

    def is_rewritten(self) -> bool:
        """By a codemod, where it runs, or where it may once a newer release is out; what is to go is deleted."""
        runs = not self.never_runs() or (self.is_for_later() and not self.is_off())
        return self.finding.fix is not None and self.finding.verdict != DELETE and runs

    def is_of_what_is_gone(self) -> bool:
        """Unless the original is read too, which raises: that is no dead code."""
        read = any(item.role == "backup" for item in self.finding.related)
        gone = (known.is_gone(self.finding.target, version) for version in self.versions)
        return bool(self.versions) and not read and all(gone)

    def is_left_behind(self) -> bool:
        """Set in a module that no longer imports it."""
        gone = (known.is_gone(self.finding.target, version, imported=True) for version in self.versions)
        return bool(self.versions) and not self.finding.patches_more and all(gone)

    @property
    def readers(self) -> str:
        """The modules that import it on the newest of the releases and use it, in brackets."""
        release = known.newest(self.versions[-1])
        copies = (name for name in release.ending(self.finding.target.rpartition(".")[2]) if release.uses(name))
        imports = (name for name in copies if name in release.facts and release.facts[name].kind == "import")
        modules = [known.told_apart(name.rpartition(".")[0], release) for name in sorted(imports)]
        return f" ({quoted(modules)})" if modules else ""

    def is_of_what_moved(self) -> bool:
        """Megatron has it in another module now, and calls that one."""
        return self.is_of_what_is_gone() and self.moved is not None

    def is_lost(self) -> bool:
        """Of what is gone, and the repository does not keep it alive for itself: what it does no longer happens."""
        return self.is_of_what_is_gone() and not self.finding.assessment.is_read and not self.finding.patches_more

    def is_of_nothing(self) -> bool:
        """Such a one that did nothing more than to answer with a constant."""
        return self.is_lost() and _CONSTANT.search(self.finding.source) is not None

    def is_of_unknown_class(self) -> bool:
        """The row is for one class, and other classes have such a method; or the patch is for one call of an object."""
        assert self.row is not None
        owner, _, name = self.finding.target.rpartition(".")
        of_one_call = self.finding.temporary and self.finding.shape == "instance-attr"
        of_its_class = api.unique_method_owner(name) == owner and not of_one_call
        told = self.row.seam == "hook" or "part" in self.row.traits or of_its_class
        return self.finding.confidence == "possible" and not told

    def has_no_way_yet(self) -> bool:
        """A release that it is judged for has none."""
        assert self.row is not None
        return self.least < self.row.needs

    def is_needed(self) -> bool:
        """It is missed on the release: it runs there, is read, and Megatron does not do it by itself."""
        [version], target = self.versions, self.finding.target
        done = self.row is not None and self.row.verdict == DELETE and version >= self.row.needs
        return not (done or self.never_runs() or known.is_gone(target, version))

    # --- words of the evidence -----------------------------------------------------------------------------------

    oldest, newest = RELEASES[0], RELEASES[-1]
    version = property(
        lambda self: ([version for version in self.versions if self.live.on(version)] or self.versions or (NEWEST,))[-1]
    )
    outlook = property(lambda self: reasons.outlook(self.finding.target, self.version))
    module = property(lambda self: self.finding.target.split(".")[-2])
    on = property(lambda self: _core(self.versions))
    last = property(lambda self: known.last(self.finding.target))
    moved = property(lambda self: known.moved_to(self.finding.target))
    way = property(lambda self: self.finding.replacement or (self.row.way if self.row else ""))
    capital_way = property(lambda self: self.way[:1].upper() + self.way[1:])
    known_way = property(lambda self: f"{self.way}{self.row.reference}" if self.row else "")
    because = property(lambda self: f": {self.known_way}" if self.row else "")
    shut = property(lambda self: self.guard.removesuffix(" there"))
    how = property(lambda self: f"`unpatch migrate{'' if self.finding.fix == 'safe' else ' --unsafe-fixes'}`")
    deletes = property(lambda self: f"; {self.how} deletes it" if self.finding.fix else "")

    @property
    def supposed(self) -> str:
        """That a way is for one class, of an object that is told by a name: another class may have that as well."""
        assert self.row is not None
        if self.finding.confidence == "certain" or self.finding.shape not in ON_OBJECTS or self.row.seam == "hook":
            return ""
        classes = (part for part in reversed(self.finding.target.split(".")) if part[:1].isupper())
        return f", if this is Megatron's `{next(classes, 'own')}`"

    @property
    def why(self) -> str:
        """What stands in the way, of one release where others differ."""
        said, on = reasons.why(self.finding, self.version, self.beside), show(self.version)
        others = (reasons.why(self.finding, version, self.beside) for version in self.versions if self.live.on(version))
        return said if " megatron-core " in f" {said}" or all(one == said for one in others) else f"On {on}: {said}"

    @property
    def without(self) -> str:
        """The releases that do not have the way."""
        assert self.row is not None
        return _core(one for one in self.versions if one < self.row.needs) or f"megatron-core before {self.oldest}"

    @property
    def waits_for(self) -> str:
        """The release with the way, where it is judged for one without."""
        if self.row is None or self.row.verdict == KEEP:
            return ""
        return show(self.row.needs) if self.least < self.row.needs else ""

    @property
    def guard(self) -> str:
        """What keeps a patch from running on the judged releases."""
        judged = {release for version in self.versions for release in releases_of(version)}
        for guard in sorted(self.live.guards, key=lambda guard: not guard.always):
            if judged <= set(guard.rules_out):
                words = _BRANCHES.get(guard.branch, _BRANCHES["after"])
                return words.format(line=guard.line, where=f"{guard.path}:{guard.line}")
        return f"the conditions around it leave {self.live}"


def _core(versions: Iterable[Version]) -> str:
    """Some releases in words; two ends stand for what lies between them."""
    named = list(map(show, versions))
    words = f"{named[0]} to {named[-1]}" if len(named) > 2 else " and ".join(named)
    return f"megatron-core {words}" if named else ""


# The first row that holds decides; the words are of the case.
_TABLE: tuple[tuple[Callable[[Any], object], str, str], ...] = (
    (_Seen.is_rewritten, REWRITE, "{0.how} rewrites it{0.because}"),
    (
        lambda case: case.finding.shape == "pin",
        STEPS,
        "The pin does not hold; `unpatch explain {0.finding.rule}` tells what to do.",
    ),
    (lambda case: not case.finding.target, DELETE, "The comment suppresses nothing."),
    (_Seen.is_off, DELETE, "It never runs, whatever the release: {0.shut} as it stands."),
    (_Seen.is_for_later, KEEP, "It is for another Megatron than {0.oldest} to {0.newest}: on these it never runs."),
    (
        lambda case: case.guessed and case.live.releases and case.never_runs(),
        KEEP,
        "It is for other releases than {0.on}: whether one of them runs here is not known.",
    ),
    (_Seen.never_runs, DELETE, "It never runs on {0.on}: {0.guard}{0.deletes}."),
    (lambda case: case.finding.upstream_has, DELETE, "{0.finding.upstream_has}."),
    (lambda case: case.finding.kept_because, KEEP, "{0.finding.kept_because}."),
    (_Seen.is_of_what_moved, STEPS, "On {0.on} Megatron calls `{0.moved}` instead: delete the patch, or move it."),
    (_Seen.is_of_nothing, DELETE, "Megatron has no such name after {0.last}: nothing calls it{0.deletes}."),
    (
        _Seen.is_lost,
        STEPS,
        (
            "Megatron has no such name after {0.last}: on {0.on} nothing calls the patch, and what it does is lost. "
            "Look for what took its place there, or delete the patch if it is not needed."
        ),
    ),
    (
        _Seen.is_left_behind,
        STEPS,
        (
            "`{0.module}` has no such name after megatron-core {0.last}, so nothing of Megatron reads it there: patch "
            "what reads it now{0.readers}, or delete this line, unless other code imports the name from there."
        ),
    ),
    (lambda case: case.row is None and case.way, STEPS, "{0.capital_way}."),
    (lambda case: case.row is None and case.finding.confidence == "possible", KEEP, "{0.why}."),
    (lambda case: case.row is None or not case.row.way, KEEP, "{0.why}. {0.outlook}"),
    (_Seen.is_of_unknown_class, KEEP, "Which class it changes is not known: if a Megatron module's, {0.known_way}."),
    (lambda case: case.row.verdict == KEEP, KEEP, "{0.capital_way}{0.row.reference}. {0.outlook}"),
    (_Seen.has_no_way_yet, KEEP, "An official way exists{0.supposed}, but not on {0.without}{0.because}. {0.outlook}"),
    (lambda case: case.row.verdict == STEPS, STEPS, "An official way exists{0.supposed}{0.because}."),
    (lambda case: case.row.verdict == DELETE, DELETE, "{0.capital_way}{0.deletes}."),
)
