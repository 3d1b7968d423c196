"""The fates that were seen by running patches, told by the next core: no column is worse than the tool's."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from fates.agreement import AGREES, agrees, table
from fates.test_fates import MISSED
from rooms import names_of

from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.records import Effect, Outcome
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder

FATES_OF = Path(__file__).parents[1] / "fates"
FATES: list[dict[str, Any]] = json.loads((FATES_OF / "fates.json").read_text(encoding="utf-8"))
# Of 267: agree, said to be fine and not, not reported at all, false alarms.
AT_LEAST, FALSE_HARMLESS, NOT_REPORTED, FALSE_ALARMS = 230, 3, 0, 27


@cache
def judged() -> list[tuple[dict[str, Any], list[tuple[Any, list[Effect]]]]]:
    """Each fate with the patches of its file, and what the step does to them."""
    files = {path.name: path.read_text(encoding="utf-8") for path in (FATES_OF / "cases").glob("*.py")}
    finder = Finder(names_of(files))
    patches = finder.all()
    judge, release = Judge(finder.names, patches), packed.details().release
    return [
        (
            fate,
            [
                (patch, judge.step(patch, release(fate["from"]), release(fate["to"])))
                for patch in patches
                if patch.path == f"{fate['case']}.py"
            ],
        )
        for fate in FATES
    ]


def _report(judged_patches: list[tuple[Any, list[Effect]]]) -> dict[str, Any]:
    """As a report of `unpatch upgrade` says it."""
    return {
        "patches": [
            {
                "path": patch.path,
                "line": patch.line,
                "target": patch.target,
                "urgency": "breaks"
                if any(one.raises for one in effects)
                else "different"
                if any(one.differs for one in effects)
                else "harmless",
                "reasons": [one.exception for one in effects if one.exception],
            }
            for patch, effects in judged_patches
        ]
    }


def test_no_column_is_worse() -> None:
    verdicts = [(fate, agrees(fate, _report(patches))) for fate, patches in judged()]
    print(table(verdicts))
    said = [verdict for _, verdict in verdicts]
    assert said.count(AGREES) >= AT_LEAST
    for column, most in (
        ("false harmless", FALSE_HARMLESS),
        ("not reported", NOT_REPORTED),
        ("false alarm", FALSE_ALARMS),
    ):
        assert sum(verdict.startswith(column) for verdict in said) <= most, column
    missed = {
        (one["case"], one["from"], one["to"]) for one, verdict in verdicts if verdict.startswith(("false h", "not r"))
    }
    assert missed <= MISSED.keys()


def test_what_is_said_to_raise_does() -> None:
    """In 61 of 64: of three the library's callers do not reach the replacement."""
    raising = [
        fate["newer"]["exception"] in {one.exception for one in effects if one.raises}
        for fate, patches in judged()
        for patch, effects in patches
        if patch.line == fate["line"] and any(one.raises for one in effects)
    ]
    print(sum(raising), len(raising))
    assert sum(raising) / len(raising) >= 0.95


def test_most_kinds_were_seen() -> None:
    seen = {one.kind for _, patches in judged() for _, effects in patches for one in effects}
    assert len(seen) >= 18
    # Those that no fate has are in `test_kinds`.
    apart = {
        Outcome.MODULE_GONE,
        Outcome.BRANCH_TURNED,
        Outcome.UNREAD,
        Outcome.UPSTREAMED,
        Outcome.NEW,
    }
    assert set(Outcome) - seen <= apart
