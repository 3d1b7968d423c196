"""The verdict on a patch by each of its facts alone: the first row of the table that holds decides."""

from dataclasses import replace
from typing import Any

import pytest

from mcore_unpatch.findings import verdicts
from mcore_unpatch.findings.finding import Assessment, Finding, Guard, Live, Related
from mcore_unpatch.megatron.answers import answers
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.stacks.revision import Judged, Revision, Stack

GONE = "megatron.core.utils.get_thd_batch_on_this_cp_rank"
SCHEDULES = "megatron.core.pipeline_parallel.schedules."
ONE = Finding("MCU602", "a.py", 3, 1, 3, "megatron.core.utils.get_model_config", "module-attr", "", source="x = y")
OLD = tuple(one for one in RELEASES if one < "0.14")
FIX = {"assessment": Assessment("rewrite", fix="safe")}
SHUT = Guard(1, 2, "if", RELEASES, always=True)
OTHER = Guard(5, 6, "if", RELEASES)
GUESS = "It is for other releases than megatron-core 0.19: whether one of them runs here is not known."
READ = (Related(2, "backup"),)


def settled(facts: dict[str, Any], *releases: str, guessed: bool = False) -> tuple[str, str]:
    judged = Judged((Stack(Revision("", tuple(map(parse_version, releases)))),))
    done = verdicts._settled(replace(ONE, **facts), judged, guessed)
    return done.verdict, done.evidence


ADDS = (
    "megatron-core 0.19 has no `get_thd_batch_on_this_cp_rank` in `utils`, only Megatron up to 0.17: the patch adds it"
)
NEVER = "It never runs on megatron-core 0.19: the "
NOTHING = "Megatron has no such name after 0.17.1: nothing calls it"
LATER = "It is for another Megatron than 0.12.0 to 0.19.2: on these it never runs."
UNREAD = (
    "No code of megatron-core 0.19 or of this repository reads this name of `utils`; line 7 sets the same elsewhere"
)
CALLED = "`finalize_model_grads` and 8 more classes or modules call it by name"
APPLIED = "`communication_utils` and 3 more classes or modules call it by name"
OFF = "It never runs, whatever the release: the condition on line 1 is false as it stands."


@pytest.mark.parametrize(
    ("facts", "verdict", "said"),
    [
        ({}, "keep", CALLED),
        ({"target": f"{SCHEDULES}forward_backward_no_pipelining"}, "keep", "`get_forward_backward_func` picks it by"),
        ({"target": f"{SCHEDULES}get_forward_backward_func"}, "keep", "`training.training` "),
        ({"target": "megatron.core.parallel_state.get_model_parallel_group"}, "keep", APPLIED),
        (
            {"target": f"{SCHEDULES}P2PCommunicator"},
            "keep",
            "`schedules` builds it by name, unless `p2p_communicator` is given. ",
        ),  # or takes one
        ({"target": "megatron.core.models.gpt.gpt_model.GPTModel"}, "keep", "Only the code that builds `GPTModel` can"),
        (FIX, "rewrite", "`unpatch migrate` rewrites it"),
        (
            {"assessment": Assessment("rewrite", fix="unsafe")},
            "rewrite",
            "`unpatch migrate --unsafe-fixes` rewrites it",
        ),
        ({"assessment": Assessment("delete", fix="safe")}, "keep", CALLED),
        (
            {**FIX, "live": Live(OLD, False)},
            "delete",
            f"{NEVER}conditions around it leave <=0.13.1; `unpatch migrate` del",
        ),
        ({**FIX, "live": Live((), True)}, "rewrite", "`unpatch migrate` rewrites it"),
        ({**FIX, "live": Live((), False, guards=(SHUT,))}, "delete", OFF),
        (
            {"shape": "pin", "rule": "MCU801"},
            "steps",
            "The pin does not hold; `unpatch explain MCU801` tells what to do.",
        ),
        ({"target": ""}, "delete", "The comment suppresses nothing."),
        ({"live": Live((), False, guards=(SHUT,))}, "delete", OFF),
        ({"live": Live((), False, guards=(OTHER, SHUT))}, "delete", OFF),
        ({"live": Live((), False, guards=(OTHER,))}, "keep", LATER),
        ({"live": Live((), True)}, "keep", LATER),
        ({"live": Live(OLD, False)}, "delete", f"{NEVER}conditions around it leave <=0.13.1."),
        ({"live": Live(OLD, False, guards=(OTHER,))}, "delete", f"{NEVER}condition on line 5 is false there."),
        ({"upstream_has": "It does so"}, "delete", "It does so."),
        ({"kept_because": "Not promised"}, "keep", "Not promised."),
        (
            {"target": GONE},
            "steps",
            "Megatron has no such name after 0.17.1: on megatron-core 0.19 nothing calls the patch",
        ),
        ({"target": GONE, "source": "utils.f = lambda *args: None"}, "delete", f"{NOTHING}."),
        ({"target": GONE, "patches_more": True}, "keep", f"{ADDS}. `"),
        ({"target": GONE, "patches_more": True, "source": "utils.f = lambda *args: None"}, "keep", f"{ADDS}. `"),
        ({"target": GONE, "related": READ}, "keep", f"{ADDS}. `"),
        ({"target": GONE, "related": (Related(2, "restore"),)}, "steps", "Megatron has no such name after"),
        ({"target": GONE, "assessment": Assessment(is_read=True)}, "keep", f"{ADDS}, and this repository reads it"),
        ({"target": GONE, "assessment": Assessment(unread=7)}, "delete", f"{NOTHING}."),
        ({"assessment": Assessment(unread=7)}, "delete", f"{UNREAD}."),
        ({"assessment": Assessment(unread=7, left_because="why.")}, "delete", f"{UNREAD}. Not deleted: why."),
        ({"replacement": "do that"}, "steps", "Do that."),
        (
            {"replacement": "do that", "assessment": Assessment(left_because="why")},
            "steps",
            "Do that. Not rewritten: why.",
        ),
        ({"confidence": "possible"}, "keep", "Which class it changes is not known"),
        ({"confidence": "likely"}, "keep", CALLED),
        ({"assessment": Assessment(left_because="why")}, "keep", CALLED),
    ],
)
def test_one_fact(facts: dict[str, Any], verdict: str, said: str) -> None:
    decided, evidence = settled(facts, "0.19")
    assert decided == verdict
    assert evidence.startswith(said), evidence
    assert evidence == said or not said.endswith("."), evidence
    guessed = settled(facts, "0.19", guessed=True)
    if said.startswith(NEVER):
        assert guessed == ("keep", GUESS)
    else:
        assert guessed == (decided, evidence)


@pytest.mark.parametrize(
    ("releases", "verdict", "on"),
    [
        (("0.17",), "keep", ""),
        (("0.17", "0.19"), "keep", ""),
        (("0.18", "0.19"), "steps", "0.18 and 0.19"),
        (("0.18", "0.18.2", "0.19"), "steps", "0.18 to 0.19"),
    ],
)
def test_a_name_that_is_gone_on_all_that_runs(releases: tuple[str, ...], verdict: str, on: str) -> None:
    decided, evidence = settled({"target": GONE}, *releases)
    assert decided == verdict
    assert (f": on megatron-core {on} nothing calls the patch" in evidence) is bool(on)


@pytest.mark.parametrize(
    ("releases", "first"),
    [
        ((), None),
        (("0.12.0",), "0.12.1"),
        (("0.12.0", "0.13.1"), "0.14"),
        (("0.18.0",), "0.18.2"),
        (("0.18.2",), "0.19"),
        (("0.19.0",), "0.19.2"),
        (("0.19.2",), None),
    ],
)
def test_the_release_behind_some(releases: tuple[str, ...], first: str | None) -> None:
    assert verdicts.first_after(releases) == (parse_version(first) if first else None)


def test_a_statement_for_several_names_stays_for_one_of_them() -> None:
    gone = replace(ONE, assessment=Assessment("delete", evidence="Gone."))
    needed = replace(ONE, target="megatron.core.a.b")
    assert verdicts._together([gone]) == [gone]
    for other in (replace(needed, line=4), replace(needed, column=2), replace(needed, path="b.py")):
        assert [one.verdict for one in verdicts._together([gone, other])] == ["delete", "keep"]
    for order in ([gone, needed], [needed, gone]):
        (kept,) = [one for one in verdicts._together(order) if one.target == ONE.target]
        assert (kept.verdict, kept.evidence) == ("keep", "Gone. Line 3 stays for `a.b`.")
    assert [one.verdict for one in verdicts._together([gone, gone])] == ["delete", "delete"]


@pytest.mark.parametrize(
    ("facts", "release", "waits"),
    [
        ({}, "0.15", "0.16"),
        ({}, "0.16", ""),
        ({"upstream_has": "It does so"}, "0.15", ""),
        ({"answer": ""}, "0.15", ""),
    ],
)
def test_only_what_is_kept_waits_for_a_release(facts: dict[str, Any], release: str, waits: str) -> None:
    answer = next(one.name for one in answers() if one.verdict == "steps" and one.needs == (0, 16) and one.way)
    finding = replace(ONE, **{"answer": answer, **facts})
    done = verdicts._settled(finding, Judged((Stack(Revision("", (parse_version(release),))),)), False)
    assert done.assessment.waits_for == waits


def test_what_only_one_of_the_releases_does_is_told_of_that_one() -> None:
    target = {"target": "megatron.core.dist_checkpointing.strategies.filesystem_async.FileSystemWriterAsync"}
    _, differs = settled(target, "0.16.0", "0.17.0")
    assert differs.startswith("On 0.17.0: `strategies.torch` uses it by name: ")
    for releases in (("0.17.0",), ("0.17.0", "0.18.0")):
        assert settled(target, *releases)[1].startswith("`strategies.torch` uses it by name: ")
