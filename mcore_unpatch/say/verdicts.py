"""What is to become of a patch, in words: one sentence for each reason."""

from __future__ import annotations

from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.say.names import short

_WORDS = {
    Reason.OFFICIAL_WAY: "An official way exists: {way}.",
    Reason.NOT_NEEDED: "{way}.",
    Reason.NEVER_RUNS: "It never runs on the releases in use.",
    Reason.FOR_OTHERS: "It is for a release that is not known: on those it never runs.",
    Reason.MOVED: "The library calls `{name}` instead: move the patch, or delete it.",
    Reason.GONE: "Nobody calls it any more: find what took its place, or delete it.",
    Reason.LEFT_BEHIND: "The module no longer has the name, and nobody reads it there.",
    Reason.NO_WAY: "There is no official way.",
    Reason.NO_WAY_YET: "An official way came later: {way}.",
    Reason.UNKNOWN_CLASS: "Which class it changes is not known.",
}
WHAT_TO_DO = {
    Fate.MOVES: "`unpatch migrate` rewrites it",
    Fate.GOES: "can be deleted",
    Fate.BY_HAND: "steps are given",
    Fate.STAYS: "pin it",
    Fate.DONE: "done already",
}


def sentence(verdict: Verdict, way: str = "") -> str:
    """Why a patch gets its verdict; way: what the row of answers offers, in its own words."""
    if verdict.reason == Reason.NO_WAY and way:
        return f"{way[:1].upper()}{way[1:]}."
    said = _WORDS[verdict.reason].format(way=way, name=short(verdict.name))
    return said[:1].upper() + said[1:]
