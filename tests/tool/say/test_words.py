"""Each kind of effect and of verdict has one sentence; a finding has three lines at most, and a cause is said once."""

import pytest

from mcore_unpatch.effects.records import RAISES, Cause, Effect, Outcome, Place
from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.library.signatures import Misfit
from mcore_unpatch.say import effects, verdicts
from mcore_unpatch.say.names import quoted, short

ROUTER = "megatron.core.transformer.moe.router.TopKRouter"
GPT = "megatron.core.models.gpt.gpt_model.GPTModel"
PLACE = Place("a.py", 7)
# The words of a cause where a kind has some; who causes it.
WORDS = {
    Outcome.CALL_UNFIT: (Misfit.UNKNOWN.value, ("lr_mult",)),
    Outcome.NOT_TAKEN: (f"{ROUTER}.forward", (Misfit.UNKNOWN.value, "padding_mask")),
    Outcome.UNPACKED: (f"{ROUTER}.forward", ("4", "5")),
    Outcome.BEHIND: ("", ("2", "0")),
    Outcome.DROPPED: (f"{ROUTER}.forward", ("padding_mask",)),
    Outcome.VALUE_MOVED: ("", ("2", "mask", "bias")),
    Outcome.DEFAULT_CHANGED: ("", ("ignore_virtual", "False", "True")),
    Outcome.CALLED_ELSEWHERE: (f"{GPT}.routing", ()),
    Outcome.BRANCH_TURNED: ("", ("True",)),
    Outcome.STOPPED: (f"{ROUTER}.forward", ()),
    Outcome.CLASS_ASKED: (f"{GPT}.forward", ()),
}


def effect(kind: Outcome, release: str = "0.19.2", name: str = f"{ROUTER}.routing") -> Effect:
    by, words = WORDS.get(kind, ("", ()))
    return Effect(kind, (release,), Cause(name, by, words), PLACE, "TypeError" if kind in RAISES else "")


@pytest.mark.parametrize("kind", Outcome)
def test_each_kind_has_one_sentence(kind: Outcome) -> None:
    said = effects.sentence(effect(kind))
    assert said[0].isupper() or said[0] in "`"
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 160
    assert said.startswith("TypeError: ") is (kind in RAISES)


def test_some_sentences_as_they_are() -> None:
    assert effects.sentence(effect(Outcome.NOT_TAKEN)) == (
        "TypeError: `TopKRouter.forward` passes `padding_mask`, and the replacement does not fit."
    )
    assert effects.sentence(effect(Outcome.UNPACKED)) == (
        "TypeError: the replacement returns 4 values where `TopKRouter.forward` unpacks 5."
    )
    assert effects.sentence(effect(Outcome.BEHIND)) == "The copy of `TopKRouter.routing` lacks 2 statements of today's."
    gone = Effect(Outcome.NAME_GONE, ("0.19.2",), Cause("a.b.old", "a.c.new"), PLACE, "AttributeError")
    assert effects.sentence(gone) == "AttributeError: `b.old` is gone. It is now `c.new`."


def test_a_cause_on_several_releases_is_said_once_and_three_lines_are_the_most() -> None:
    same = [effect(Outcome.NOT_TAKEN, release) for release in ("0.18.2", "0.19.2")]
    assert len(effects.details(same)) == 1
    many = [effect(Outcome.NAME_GONE, name=f"{ROUTER}.name{number}") for number in range(9)]
    lines = effects.details(many)
    assert len(lines) == effects.MOST_LINES
    assert lines[-1] == "And 7 more: unpatch explain."


def test_what_raises_comes_first_and_what_was_seldom_true_is_not_printed() -> None:
    lines = effects.details([effect(Outcome.BODY_CHANGED), effect(Outcome.COUNT_UNKNOWN), effect(Outcome.NOT_TAKEN)])
    assert [line.partition(":")[0] == "TypeError" for line in lines] == [True, False]


@pytest.mark.parametrize(
    ("kinds", "mark"),
    [
        ((), "ok"),
        ((Outcome.NONE,), "ok"),
        ((Outcome.NEVER_RUNS,), "-"),
        ((Outcome.UNREAD,), "?"),
        ((Outcome.BEHIND,), "differs"),
        ((Outcome.BEHIND, Outcome.NAME_GONE), "RAISES"),
    ],
)
def test_the_mark_in_a_table(kinds: tuple[Outcome, ...], mark: str) -> None:
    assert effects.mark([effect(kind) for kind in kinds]) == mark


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_one_sentence(reason: Reason) -> None:
    said = verdicts.sentence(Verdict(Fate.STAYS, reason, "row", f"{ROUTER}.routing"), "set `config.flag`")
    assert said[0].isupper()
    assert said.endswith(".")
    assert "{" not in said


def test_each_fate_says_what_to_do() -> None:
    assert verdicts.WHAT_TO_DO.keys() == set(Fate)


def test_names() -> None:
    assert short(f"{ROUTER}.routing") == "TopKRouter.routing"
    assert short(ROUTER) == "TopKRouter"
    assert short("megatron.core.parallel_state.get_rank") == "parallel_state.get_rank"
    assert quoted("abcde") == "`a`, `b`, `c` and 2 more"
