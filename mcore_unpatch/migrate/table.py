"""The end of a migration for people, on one screen: done, with what is gained; left; next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcore_unpatch.migrate.changes import CodeChange, changes
from mcore_unpatch.migrate.outcome import Outcome, oldest_python
from mcore_unpatch.report.counts import groups
from mcore_unpatch.report.lines import Line, count, width, wrapped
from mcore_unpatch.report.screen import brief, pin_command

_MOST = 12  # changes that are listed
_MOST_HEADS = 2  # of lines that say what is judged for
_LONG, _PARTS = 60, 5  # letters and parts of a path that is shortened
_BESIDE = "Every Megatron in use still runs: edits ask at run time which code to take."
_STYLES = {"exact": "green", "rounding": "yellow", "behaviour": "yellow"}


def lines(outcome: Outcome, recipes: bool = False) -> Iterator[Line]:
    """The table, line by line; `recipes` in full, for whoever reads a diff too."""
    made = changes(outcome)
    yield from _head(outcome)
    for recipe in outcome.plan.recipes if outcome.rewrites else ():
        first, _, code = recipe.rstrip().partition("\n")
        yield from wrapped(first if recipes else f"{first}: unpatch migrate --diff shows it", 0, "Either  ", "bold")
        if recipes:
            yield from ([(f"        {line}".rstrip(), "dim")] for line in code.split("\n"))
        yield from wrapped(
            "what is below, which can do CP, packing, temperature and Hybrid models, once your code asks for them.",
            0,
            "Or      ",
            "bold",
        )
        yield []
    for change in made[:_MOST]:
        yield from _change(change, outcome)
    if made[_MOST:]:
        yield [(f"  ... and {len(made) - _MOST} more; --diff shows them all", "dim")]
    yield from _needs(outcome)
    yield from _told(outcome)
    yield from _next(outcome, made)


def _head(outcome: Outcome) -> Iterator[Line]:
    if not outcome.rewrites:
        unsafe = sum(finding.fix == "unsafe" for finding in outcome.left)
        without = f" without --unsafe-fixes, which is for {count(unsafe, 'finding')}" if unsafe else ""
        yield [(f"Nothing to migrate{without}.", "green")]
        yield from _why(outcome)
        return
    if any(edit.holds for edit in outcome.plan.edits):
        yield from wrapped(_BESIDE, 0)
        yield []
    else:
        for judged in outcome.survey.judged[:_MOST_HEADS]:
            yield from wrapped(str(judged), 0)
        yield []


def _why(outcome: Outcome) -> Iterator[Line]:
    """Why places in code are left, a sentence each, as far as a screen goes."""
    lines = 0
    for finding in groups(outcome.left)["code"]:
        why = finding.assessment.left_because or finding.evidence
        sentence = re.split(r"\. (?=[A-Z`])|; ", why)[0].rstrip(".")
        place = f"{_short(outcome.shown(finding.path))}:{finding.line}"
        told = list(wrapped(f"{place}  {sentence}", 2, hang=6))
        lines += len(told)
        if lines > _MOST:
            break
        yield from told


def _change(change: CodeChange, outcome: Outcome) -> Iterator[Line]:
    """What a maintainer gains by all places of a change together; what is changed where, and of which level."""
    if change.gain:
        yield from wrapped(f"{change.gain[:1].upper()}{change.gain[1:]}.", 2, "Gain: ", "bold")
    for path, parts in change.places.items():
        for line, titles in parts.items():
            place = f"{_short(outcome.shown(path))}:{outcome.line(path, line)}"
            level, said = change.levels[path, line], "; ".join(titles)
            fits = len(f"  {place}  {said}  {level}") <= width()
            yield [(f"  {place}", "cyan"), *([(f"  {said}", "")] if fits else []), (f"  {level}", _STYLES[level])]
            if not fits:
                yield from wrapped(said, 6)
    for text in change.notes:
        yield from wrapped(text, 6, "- ")


def _short(path: str) -> str:
    """A path that fits a line: its first two folders and its last."""
    parts = path.split("/")
    return path if len(path) < _LONG or len(parts) < _PARTS else "/".join([*parts[:2], "...", *parts[-2:]])


def _needs(outcome: Outcome) -> Iterator[Line]:
    if not outcome.rewrites:
        return
    if (requirement := outcome.plan.requirement) is not None:
        yield from wrapped(f"{requirement}, for what is not guarded", 0, "Needs   ", "bold")
    if needed := outcome.dependency:
        optional = all(edit.holds for edit in outcome.plan.edits if b"mcore_unpatch" in edit.replacement)
        told = f"{needed.line} {_PUBLISH}" if optional else needed.line
        python = f"; Python 3.{oldest_python(needed.line)} there ({needed.python})" if needed.python else ""
        yield from wrapped(f"{told}{python}", 0, "Needs   ", "bold")


_PUBLISH = "in images and one CI job, for the new side: as a wheel of a release, since it is on no public index yet"


def _told(outcome: Outcome) -> Iterator[Line]:
    """What people should know of code beside the edits."""
    edited = {edit.path for edit in outcome.plan.edits}
    for remark in outcome.remarks if outcome.rewrites else ():
        if remark.kind in {"guard", "numerics", "differs"} or (remark.kind == "by-hand" and remark.path in edited):
            if not any(finding.path == remark.path and finding.line == remark.line for finding in outcome.left):
                place = f"{outcome.shown(remark.path)}:{outcome.line(remark.path, remark.line)}  "
                yield from wrapped(remark.text, 0, f"See     {place}", "", 8)


def _next(outcome: Outcome, made: list[CodeChange]) -> Iterator[Line]:
    """The last lines: what was written, what is left, with the numbers of `scan`, and what to run next."""
    yield []
    if outcome.rewrites:
        added, removed = outcome.size
        changed = f"{count(len(outcome.rewrites), 'file')}, +{added} -{removed}"
        yield from wrapped(changed, 0, "Done    " if outcome.written else "Would be done: ", "bold")
    left = groups(outcome.left)
    heads = {"code": "in code", "tests": "in tests", "patch_files": "in patch files", "other": "besides"}
    rest = [f"{len(left[name])} {head} ({brief(left[name])})" for name, head in heads.items() if left[name]]
    told = f"{'; '.join(rest)}: unpatch scan" if rest else "nothing"
    yield from wrapped(told, 0, "Left    ", "bold")
    if done := len(outcome.survey.done):
        yield from wrapped(f"{count(done, 'place')} side by side already", 0, "Before  ", "bold")
    for offer in outcome.offers:
        yield from wrapped(offer, 0, "Offer   ", "bold")
    if any(finding.verdict == "keep" for finding in left["code"]) and not outcome.rewrites:
        yield from wrapped(
            f"{pin_command(outcome.survey.judged)}, which tells when Megatron changes under a patch that stays",
            0,
            "Next    ",
            "bold",
        )
    if outcome.written:
        yield from wrapped("git diff; unpatch undo takes it back", 0, "Review  ", "bold")
    elif len(made) > 1:
        commits = f"unpatch migrate --commit makes one commit for each of {len(made)} changes"
        yield from wrapped(commits, 0, "Next    ", "bold")
