"""The end of a migration for people: what changed, what was left and why, what to do by hand, what is now needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mcore_unpatch.editing.edits import Edit
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.reasons import guard
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.records import record, replace
from mcore_unpatch.report.counts import group_of, groups
from mcore_unpatch.report.lines import Line, count, wrapped
from mcore_unpatch.report.screen import brief, pin_command

_MOST_LINES = 6  # of a file that are named for one rule
_SECTIONS = {
    "numerics": "Results may change",
    "note": "Good to know",
    "differs": "Functions that differ from upstream",
    "finding": "Left as it is",
    "left": "Not changed, and why",
    "by-hand": "To do by hand",
    "guard": "No longer needed",
}


@record
class _Entry:
    """One place of a section. Places with the same text are printed above it together, and texts of the same places."""

    kind: str
    path: str
    line: int
    rule: str
    text: str
    subject: str = ""
    detail: str = ""


def lines(outcome: Outcome) -> Iterator[Line]:
    """The table, line by line."""
    yield from _head(outcome)
    yield from _files(outcome)
    told = [*_notes(outcome), *_told(outcome)]
    entries = [replace(entry, text=outcome.renumbered(entry.path, entry.text)) for entry in told]
    for kind, title in _SECTIONS.items():
        chosen = sorted((entry for entry in entries if entry.kind == kind), key=lambda entry: (entry.path, entry.line))
        yield from _entries(title, chosen, outcome)
    yield from _needs(outcome)
    if outcome.survey.findings:
        yield []
        for judged in outcome.survey.judged:
            yield from wrapped(str(judged), 0)
        yield from _summary(outcome)


def _head(outcome: Outcome) -> Iterator[Line]:
    if not outcome.rewrites:
        unsafe = sum(finding.fix == "unsafe" for finding in outcome.left)
        without = f" without --unsafe-fixes, which is for {count(unsafe, 'finding')}" if unsafe else ""
        yield [(f"Nothing to migrate{without}.", "green")]
        older = {remark.path: outcome.options.older(remark.path) for remark in outcome.remarks}
        held = [remark.path for remark in outcome.remarks if older[remark.path] and older[remark.path] in remark.text]
        if held:
            known = not all(map(outcome.survey.stacks.unsure, held))
            stacks = [stack for judged in outcome.survey.judged for stack in judged.stacks]
            unsure = "One of the Megatrons that run" if len(stacks) > 1 else "Which Megatron runs"
            lacks = "has" if any(max(stack.needed, default=HOOK_SINCE) < HOOK_SINCE for stack in stacks) else "may have"
            why = f"A Megatron that runs here {lacks} no hook." if known else f"{unsure} here is not known."
            consent = " --unsafe-fixes" if outcome.options.unsafe_fixes else ""
            command = f"`unpatch migrate --diff{consent} --target-mcore {RELEASES[-1]}`"
            yield from wrapped(f"{why} {command} shows the edits for that release.", 0)
        return
    done = "Migrated" if outcome.written else "Would migrate"
    yield [(f"{done}: {count(len(outcome.rewrites), 'file')}, {count(len(outcome.plan.edits), 'edit')}.", "bold")]


def _files(outcome: Outcome) -> Iterator[Line]:
    rules = defaultdict(set)
    for answered in outcome.answered:
        rules[answered.path].add(answered.rule)
    for edit in outcome.plan.edits:  # may be in a file without findings
        rules[edit.path].add(edit.rule)
    empty = {
        # An empty `__init__.py` says that a folder is a package.
        item.path: ""
        if item.after.strip() or item.path.endswith("__init__.py")
        else "; nothing is left in it: delete it"
        for item in outcome.rewrites
    }
    rows = [(outcome.shown(path), ", ".join(sorted(rules[path])) + left) for path, left in empty.items()]
    yield from _section("Files changed", rows)


def _section(title: str, rows: list[tuple[str, str]]) -> Iterator[Line]:
    if not rows:
        return
    yield []
    yield [(title, "bold")]
    columns = max(len(first) for first, _ in rows)
    for first, second in rows:
        yield from wrapped(second, 2, f"{first.ljust(columns)}  ", "cyan")


def _entries(title: str, entries: list[_Entry], outcome: Outcome) -> Iterator[Line]:
    """A section: what is the same for several places stands once below them."""
    if not entries:
        return
    yield []
    yield [(title, "bold")]
    places: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
    for entry in entries:
        places[entry.text, entry.detail].append(entry)
    texts: dict[tuple[_Entry, ...], list[tuple[str, str]]] = defaultdict(list)
    for (text, detail), some in places.items():
        texts[tuple(replace(entry, text="", detail="") for entry in some)].append((text, detail))
    for where, told in texts.items():
        yield from _places(where, outcome)
        for text, detail in told:
            if text:
                yield from wrapped(f"{_capital(text).removesuffix('.')}.", 6, "- " if len(told) > 1 else "")
            for part in detail.splitlines():
                yield [(f"      {part}", "")]


def _places(where: Sequence[_Entry], outcome: Outcome) -> Iterator[Line]:
    """One line for all places of a file that break the same rule."""
    alike: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
    for entry in where:
        alike[entry.path, entry.rule].append(entry)
    for (path, rule), some in alike.items():
        numbers = [str(line) for line in dict.fromkeys(outcome.line(path, entry.line) for entry in some)]
        more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
        lines = ", ".join(numbers[:_MOST_LINES]) + more
        subjects = {entry.subject for entry in some}
        subject = some[0].subject if len(subjects) == 1 else "(test)" if some[0].subject.endswith("(test)") else ""
        yield from wrapped(f"{rule}  {subject}".rstrip(), 2, f"{outcome.shown(path)}:{lines}  ", "cyan", hang=10)


def _notes(outcome: Outcome) -> Iterator[_Entry]:
    """What edits have to say, once for all that answer one finding, at the place of it."""
    told: dict[tuple[str, str, str, int], Edit] = {}
    for change in outcome.changes:
        edit = change.edit
        told.setdefault((edit.path, edit.rule, edit.title, edit.finding_line or change.before.line), edit)
    for (*_, line), edit in told.items():
        kind = "note" if edit.applicability == "safe" else "numerics"
        for text in edit.notes:
            yield _Entry(kind, edit.path, line, edit.rule, text)


def _told(outcome: Outcome) -> Iterator[_Entry]:
    """The remarks of the plan; then every patch that stays, with what they say of it."""
    reasons: dict[tuple[str, int], str] = {
        (one.path, one.line): "`--unsafe-fixes` rewrites it" for one in outcome.left if one.fix == "unsafe"
    }
    raised = {(finding.path, finding.line): _raised(finding) for finding in outcome.left if finding.breaks}
    left = {(finding.path, finding.line): _subject(finding) for finding in outcome.left}
    told: set[tuple[str, int]] = set()  # by its steps
    for remark in outcome.remarks:
        place = (remark.path, remark.line)
        if remark.kind == "left" and place in left:
            reasons[place] = remark.text
        else:
            text = _joined(raised.get(place, ""), remark.text) if remark.kind == "by-hand" else remark.text
            subject = left.get(place, "") if remark.kind == "by-hand" else ""
            yield _Entry(remark.kind, *place, remark.rule, text, subject, detail=remark.detail)
            if remark.kind == "by-hand":
                told.add(place)
    for finding in outcome.left:
        if group_of(finding) == "possible" or (finding.path, finding.line) in told.difference(reasons):
            continue
        reason = reasons.get((finding.path, finding.line))
        subject, at = _subject(finding), (finding.path, finding.line, finding.rule)
        if not reason and finding.verdict == "steps" and finding.steps and not finding.in_test:
            steps = (f"{number}. {step}" for number, step in enumerate(finding.steps, 1))
            told_first = _joined(_raised(finding), finding.evidence)
            yield _Entry("by-hand", *at, "\n".join([told_first, *steps]), subject)
        else:
            yield _Entry("finding", *at, _joined(_raised(finding), reason or finding.evidence), subject)


def _subject(finding: Finding) -> str:
    """What a finding replaces, in short."""
    return ".".join(finding.target.split(".")[-2:]) + (" (test)" if finding.in_test else "")


def _raised(finding: Finding) -> str:
    """What a release does to a patch; nothing where that is nothing."""
    return next((text for text in finding.breaks if "Error" in text), next(iter(finding.breaks), ""))


def _summary(outcome: Outcome) -> Iterator[Line]:
    """The last lines: what was done, what is left, with the numbers of `scan`, and how to take it back."""
    left = groups(outcome.left)
    deleted = sum(finding.verdict == "delete" for finding in outcome.done)
    ways = {"rewritten": len(outcome.done) - deleted, "deleted": deleted}
    if said := " and ".join(f"{number} {way}" for way, number in ways.items() if number):
        yield from wrapped(said, 0, "Done: " if outcome.written else "Would be done: ", "bold")
    heads = {"code": "in code", "tests": "in tests", "patch_files": "in patch files", "possible": "possible by name"}
    rest = [f"{len(left[name])} {head} ({brief(left[name])})" for name, head in heads.items() if left[name]]
    yield from wrapped("; ".join(rest) or "nothing", 0, "Left: ", "bold")
    kept = [finding for finding in left["code"] if finding.verdict == "keep"]
    releases = outcome.survey.stacks.versions
    # Not what this Megatron lacks.
    if pinned := sum(bool(guard(finding.target, releases(finding.path)[-1])) for finding in kept):
        some = "the" if pinned == len(kept) else f"{pinned} of the"
        stay = "the patch that stays" if len(kept) == 1 else f"{some} {len(kept)} patches that stay"
        command = pin_command(outcome.survey.judged)
        yield from wrapped(f"{command}, which tells when Megatron changes under {stay}", 0, "Next: ", "bold")
    if outcome.written:
        yield from wrapped("unpatch undo", 0, "To take it back: ", "bold")


def _joined(*texts: str) -> str:
    """Sentences, one behind the other."""
    *first, last = filter(None, texts)
    return " ".join([*(f"{_capital(text).removesuffix('.')}." for text in first), _capital(last)])


def _capital(text: str) -> str:
    """As a sentence begins; a path stays as it is."""
    return text if ".py:" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def _needs(outcome: Outcome) -> Iterator[Line]:
    rows = []
    if outcome.plan.requirement and outcome.rewrites:
        rows.append(("megatron-core", f"{outcome.plan.requirement} is now required"))
        floor = parse_version(outcome.plan.requirement.partition(">=")[2])
        older = outcome.survey.stacks.older_than(floor)
        unsure = [stack for stack in older if max(stack.needed, default=()) >= floor]  # a commit between two releases
        sure = [stack for stack in older if stack not in unsure]
        for head, says, some in (("older ones", "stop", sure), ("perhaps older", "may stop", unsure)):
            if some:
                rows.append((head, f"{says} working with this: {', '.join(map(str, some))}"))
        if low := outcome.survey.stacks.reaching_below(floor):
            rows.append(("allowed", f"are older ones too, raise this: {', '.join(map(str, low))}"))
    if needed := outcome.dependency:
        rows.append(("dependency", f"{needed.line} (add it to your dependencies)"))
        if needed.python:
            rows.append(("Python", f"3.12 for {needed.line}, 3.11 for `unpatch` alone ({needed.python})"))
    yield from _section("Now needed", rows)
