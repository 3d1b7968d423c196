"""A scan on one screen: what was read, what it means, the most urgent places, and what to run next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.megatron.versions import parse_version, show
from mcore_unpatch.report.counts import FATES, counts, fate_of, groups, subjects, urgency
from mcore_unpatch.report.lines import Line, count, width, wrapped
from mcore_unpatch.stacks.revision import Judged, Stack

MOST = 5  # places that are named
_MOST_RELEASES = 3
_BESIDE = {"tests": "In tests", "patch_files": "Patch files", "possible": "Possible, by a method's name alone"}
_STYLES = {"breaks": "bold red", "rewrite": "green", "delete": "green"}
_STYLES |= dict.fromkeys(("may_break", "changes", "by_hand"), "yellow")


def lines(report: Report, places: int = MOST) -> Iterator[Line]:
    """The screen, line by line; without the most urgent where they stand above it in full."""
    yield from wrapped(" ".join([f"{count(report.files_scanned, 'file')} read.", *map(str, report.judged)]), 0)
    yield []
    grouped = groups(report.findings)
    code = grouped["code"]
    if code:
        yield [(f"{subjects(code)}:", "bold")]
        yield from _rows(code, _releases(code, report))
    if code and places:
        yield []
        yield from most_urgent(code, report, places)
    if code and len(report.findings) > len(code):
        yield []
    for name, head in _BESIDE.items():  # what is no code of the product, one line each
        if grouped[name]:
            yield from wrapped(f"{len(grouped[name])} ({brief(grouped[name])})", 0, f"{head}: ", hang=2)
    if grouped["other"]:
        yield from wrapped(subjects(grouped["other"]), 0, "Also: ", hang=2)
    yield []
    yield from _next(report, detailed=places == 0)


def most_urgent(findings: Sequence[Finding], report: Report, places: int) -> Iterator[Line]:
    """The places that need somebody first, two lines or three for each."""
    first = _primary(report)
    newest = first.versions[-1] if first else ()
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: urgency(finding, newest)):
        alike.setdefault((finding.path, _sentence(finding)), []).append(finding)
    yield [("Most urgent" if len(alike) > places else "Where", "bold")]
    for (path, said), some in list(alike.items())[:places]:
        at = ", ".join(str(line) for line in sorted({finding.line for finding in some}))
        known = ", ".join(dict.fromkeys(finding.rule for finding in some))
        place = f"  {report.from_here(path)}:{at}"
        fits = len(place) + 2 + len(known) <= width()
        yield [(place, "cyan"), (f"  {known}" if fits else "", "")]
        yield from wrapped(said if fits else f"{known}  {said}", 6)


def _rows(findings: Sequence[Finding], releases: str) -> Iterator[Line]:
    """One row for each thing that findings may mean, if any does; those below the first two add up to all."""
    number = counts(findings)
    rows = {
        "breaks": (number["breaks"], f"{_verb(number['breaks'], 'break')} on {releases}"),
        "may_break": (
            number["may_break"],
            "may break: on a release beside the commit that you run, or where code of yours stands in for Megatron's",
        ),
        "changes": (number["changes"], f"{_verb(number['changes'], 'change')} silently there: no error, other results"),
        "rewrite": _by_migrate(number, "rewrite", "rewritten"),
        "delete": _by_migrate(number, "delete", "deleted"),
        "by_hand": (number["by_hand"], "by hand, step by step"),
        "kept": (number["kept"], f"kept: {_kept(findings)}"),
    }
    for name, (amount, words) in rows.items():
        if amount:
            yield from wrapped(words, 0, f"{amount:>5}  ", _STYLES.get(name, ""))


def _kept(findings: Sequence[Finding]) -> str:
    """Why: older Megatrons lack the official way, there is none, or the patch never runs on those that are known."""
    kept = [finding.assessment.waits_for for finding in findings if fate_of(finding) == "kept"]
    waiting = sorted(filter(None, kept), key=parse_version)
    if not waiting:
        return "no official way is known or needed"
    there = f"the official way needs {' or '.join(dict.fromkeys(waiting))}"
    others = len(kept) - len(waiting)
    return f"for {len(waiting)} {there}, for {others} none is known or needed" if others else there


def _by_migrate(number: dict[str, int], fate: str, done: str) -> tuple[int, str]:
    """What can be rewritten or deleted, and by whom: with numbers where that is not one alone."""
    ways = {"by migrate": "", "by migrate --unsafe-fixes": "_unsafe", "by hand": "_by_hand"}
    amounts = {way: amount for way, end in ways.items() if (amount := number.get(fate + end, 0))}
    told = next(iter(amounts), "") if len(amounts) == 1 else ", ".join(f"{amounts[way]} {way}" for way in amounts)
    return sum(amounts.values()), f"can be {done}{':' if len(amounts) > 1 else ''} {told}"


def _sentence(finding: Finding) -> str:
    """What is most urgent to know of a finding, and what becomes of it."""
    said = finding.breaks[0] if finding.effect else finding.message.partition("; ")[0]
    if "break" in finding.effect:  # of several releases, the first may only leave it without effect
        said = next((text for text in finding.breaks if "Error" in text), said)
    named = said.startswith(("`", "the ", "line ")) or finding.target.rpartition(".")[2] in said
    about = "" if named else f"`{'.'.join(finding.target.split('.')[-2:])}`: "
    return f"{about}{said} ({FATES[fate_of(finding)]})"


def brief(findings: Sequence[Finding]) -> str:
    """`2 for migrate, 1 with --unsafe-fixes, 3 by hand; 1 breaks`: the same numbers in half a line."""
    number = counts(findings)
    fates = {
        "for migrate": number["rewrite"] + number["delete"],
        "with --unsafe-fixes": number["rewrite_unsafe"] + number["delete_unsafe"],
        "to delete": number["delete_by_hand"],
        "by hand": number["by_hand"],
        "kept": number["kept"],
    }
    effects = {
        _verb(number["breaks"], "break"): number["breaks"],
        "may break": number["may_break"],
        f"{_verb(number['changes'], 'change')} silently": number["changes"],
    }
    told = (", ".join(f"{amount} {word}" for word, amount in part.items() if amount) for part in (fates, effects))
    return "; ".join(filter(None, told))


def _next(report: Report, detailed: bool) -> Iterator[Line]:
    """The commands that come next."""
    number = counts(report.findings)
    where = "".join(f" {shlex.quote(path)}" for path in report.named)
    commands = {}
    if number["rewrite"] + number["delete"]:
        commands["Next: "] = f"unpatch migrate --diff{where}"
    elif number["rewrite_unsafe"] + number["delete_unsafe"]:
        commands["Next: "] = f"unpatch migrate --unsafe-fixes --diff{where}"
    elif number["kept"] and not number["breaks"] + number["may_break"]:
        # `check` then says when Megatron changes what stays.
        commands["Next: "] = f"{pin_command(report.judged)}{where}"
    stacks = _stacks(report)
    if len(stacks) > 1 and (first := _primary(report)):  # what one of them alone allows is often more
        commands[f"One of {len(stacks)} Megatrons alone: "] = f"unpatch scan --stack {shlex.quote(first.name)}{where}"
    if not detailed:
        commands["All:  " if "Next: " in commands else "Next: "] = f"unpatch scan --verbose{where}"
    for head, command in commands.items():
        yield from wrapped(command, 0, head, "bold")


def pin_command(judged: Sequence[Judged]) -> str:
    """`unpatch pin`, with the release where no file of the repository names one."""
    first = judged[0].stacks[0] if judged else None
    if first is None or first.said or first.why.startswith("stated in"):
        return "unpatch pin"
    return f"unpatch pin --target-mcore {shlex.quote(first.revision.given or first.name)}"


def _stacks(report: Report) -> set[Stack]:
    return {stack for judged in report.judged for stack in judged.stacks if stack.versions}


def _primary(report: Report) -> Stack | None:
    """The newest Megatron that a repository surely runs, in the most places."""
    told = _stacks(report)
    return max(told, key=lambda stack: (stack.revision.certain, stack.versions[-1], len(stack.said)), default=None)


def _releases(findings: Sequence[Finding], report: Report) -> str:
    """On what something breaks: the releases, or how many there are, and how it is on the one that counts most."""
    breaking = [finding for finding in findings if finding.effect == "breaks"]
    broken = sorted({release for finding in breaking for release in finding.fails}, key=parse_version)
    stacks, first = _stacks(report), _primary(report)
    if len(broken) > _MOST_RELEASES and first is not None:
        newest = show(first.versions[-1])
        there = sum(newest in finding.fails for finding in breaking)
        if there == len(breaking):
            return f"{first.name}, which you run, and on others"
        return f"at least one of the {len(stacks)} Megatrons that you run, {there} on {first.name}"
    known = broken or [show(one) for one in sorted({one for judged in report.judged for one in judged.versions})]
    return f"megatron-core {' or '.join(known)}"


def _verb(number: int, word: str) -> str:
    return f"{word}s" if number == 1 else word
