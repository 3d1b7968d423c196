"""What is to become of a finding, in words: one sentence for each reason."""

from __future__ import annotations

from collections.abc import Mapping

from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.say.names import short

_WORDS = {
    Reason.OFFICIAL_WAY: "An official way exists: {way}.",
    Reason.NOT_NEEDED: "{way}.",
    Reason.NEVER_RUNS: "It never runs on the releases in use: {guard}.",
    Reason.FOR_OTHERS: "It is for a release that is not known: on those that are it never runs.",
    Reason.MOVED: "Megatron calls `{name}` instead: move the patch, or delete it.",
    Reason.GONE: "Nobody calls it any more: find what took its place, or delete it.",
    Reason.LEFT_BEHIND: "The module no longer has the name: patch who reads it now, or delete this.",
    Reason.NO_WAY: "There is no official way.",
    Reason.NO_WAY_YET: "An official way came later: {way}.",
    Reason.UNKNOWN_CLASS: "Which class it changes is not known.",
    Reason.OFF: "It never runs, whatever the release: {guard}.",
    Reason.NOT_KNOWN: "It is for other releases than the one assumed here.",
    Reason.SAME: "Megatron has just that there already.",
    Reason.SHARED: "Its statement is needed for `{name}`.",
    Reason.OLD_BRANCH: "It runs on megatron-core {live} alone, which has no other way.",
    Reason.BESIDE: "`{name}` is taken first.",
    Reason.OTHER_PACKAGE: "It runs only where `{name}` cannot be imported.",
    Reason.APPLIED: "{name} has all of these changes.",
    Reason.APPLIES: "It applies to {name}.",
    Reason.FITS_NOT: "It does not apply to {name}.",
    Reason.NOT_TRIED: "Whether it applies was not tried: `--target-mcore PATH` tells.",
    Reason.PIN: "The pin does not hold; `unpatch explain {rule}` tells what to do.",
    Reason.IDLE: "The comment suppresses nothing.",
}
WHAT_TO_DO = {
    Fate.MOVES: "`unpatch migrate` rewrites it",
    Fate.GOES: "can be deleted",
    Fate.BY_HAND: "steps are given",
    Fate.STAYS: "pin it",
    Fate.DONE: "done already",
}


def sentence(verdict: Verdict, words: Mapping[str, str]) -> str:
    """Why a finding gets its verdict; words: the way that the row of answers offers, and what else a sentence names."""
    way = words.get("way", "")
    if verdict.reason == Reason.OFFICIAL_WAY and not verdict.row:
        return f"{way[:1].upper()}{way[1:]}."
    if verdict.reason == Reason.NO_WAY and way:
        return f"{way[:1].upper()}{way[1:]}."
    name = verdict.name if verdict.reason in _AS_WRITTEN else short(verdict.name)
    said = _WORDS[verdict.reason].format(**{**words, "name": name})
    return said[:1].upper() + said[1:]


_AS_WRITTEN = {Reason.BESIDE, Reason.OTHER_PACKAGE, Reason.APPLIED, Reason.APPLIES, Reason.FITS_NOT}
