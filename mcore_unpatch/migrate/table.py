"""The end of a migration for people, on one screen: done, with what is gained; left; next."""

from __future__ import annotations

from collections.abc import Iterator

from mcore_unpatch.migrate.changes import CodeChange, changes
from mcore_unpatch.migrate.outcome import Outcome, oldest_python
from mcore_unpatch.report.counts import groups
from mcore_unpatch.report.lines import Line, count, wrapped
from mcore_unpatch.report.screen import brief, pin_command

_MOST = 12  # changes that are listed
_BESIDE = "Every Megatron in use still runs: new imports ask at run time which code to take."
_STYLES = {"exact": "green", "rounding": "yellow", "behaviour": "yellow"}


def lines(outcome: Outcome) -> Iterator[Line]:
    """The table, line by line."""
    made = changes(outcome)
    yield from _head(outcome)
    for recipe in outcome.plan.recipes if outcome.rewrites else ():
        yield from wrapped(recipe.partition("\n")[0], 0, "First   ", "bold")
        yield from ([(f"        {line}".rstrip(), "dim")] for line in recipe.rstrip().split("\n")[1:])
        yield from wrapped(
            "What is below can do CP, packing, temperature and Hybrid models, once your code asks for them.",
            0,
            "Then    ",
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
        return
    if any(edit.holds for edit in outcome.plan.edits):
        yield from wrapped(_BESIDE, 0)
        yield []


def _change(change: CodeChange, outcome: Outcome) -> Iterator[Line]:
    """What is changed where, of which level, and what a maintainer gains."""
    for path, parts in change.places.items():
        for line, titles in parts.items():
            place = f"{outcome.shown(path)}:{outcome.line(path, line)}"
            level = change.levels[path, line]
            yield [(f"  {place}", "cyan"), (f"  {level}", _STYLES[level])]
            yield from wrapped("; ".join(titles), 6)
    for text in change.notes:
        yield from wrapped(text, 6, "- ")
    if change.gain:
        yield from wrapped(f"{change.gain[:1].upper()}{change.gain[1:]}.", 6, "Gain: ", "bold")


def _needs(outcome: Outcome) -> Iterator[Line]:
    if not outcome.rewrites:
        return
    if (requirement := outcome.plan.requirement) is not None:
        yield from wrapped(f"{requirement}, for what is not guarded", 0, "Needs   ", "bold")
    if needed := outcome.dependency:
        optional = all(edit.holds for edit in outcome.plan.edits if b"mcore_unpatch" in edit.replacement)
        told = f"{needed.line} in the images and a CI job that are to run the new side" if optional else needed.line
        python = f"; Python 3.{oldest_python(needed.line)} there ({needed.python})" if needed.python else ""
        yield from wrapped(f"{told}{python}", 0, "Needs   ", "bold")
        if optional:
            yield from wrapped(_PUBLISH, 8)


_PUBLISH = (
    "It is on no public index yet: build a wheel of a release, and install that file, or serve it from your own index."
)


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
