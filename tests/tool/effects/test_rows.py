"""Every row of what is known of Megatron, asked by the next core: its example fits, its counterexample does not."""

import pytest
from rooms import names_of

from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict, Verdicts
from mcore_unpatch.megatron import packed
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.parts import TELLS
from mcore_unpatch.patches.find import Finder

HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
# What the finder takes for no patch, and one alias that is known by what it stands for.
OTHERWISE = {"jit-fuser", "gradients-finalized", "spec-part", "norm-name"}
ROWS = [row for row in answers() if row.name not in OTHERWISE]
RELEASES = [packed.details().release(label) for label in packed.packed().labels]


def verdicts(code: str, label: str = RELEASES[-1].label) -> list[Verdict]:
    """What becomes of each patch of a file on one release."""
    finder = Finder(names_of(code))
    patches = finder.all()
    every = Verdicts(Judge(finder.names, patches), answers(), TELLS, RELEASES)
    return [every.of(patch, [packed.details().release(label)]) for patch in patches]


def rows(code: str) -> list[str]:
    """The rows that fit the patches of a file."""
    finder = Finder(names_of(HEAD + code))
    judge = Judge(finder.names, finder.all())
    every = Verdicts(judge, answers(), TELLS, RELEASES)
    found = (every.row(case, RELEASES[-1:]) for case in judge.cases.values())
    return [row.name if row is not None else "" for row in found]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_example_fits_and_the_counterexample_does_not(row: Answer) -> None:
    assert row.name in rows(row.example)
    others = rows(row.counterexample)
    assert others, "a counterexample is a patch too"
    assert row.name not in others


PATCH = "from megatron.core.transformer.moe.router import TopKRouter\n{}def new(self, logits): ...\n{}"
VERDICTS = {
    "no way": (
        Fate.STAYS,
        Reason.NO_WAY,
        "from megatron.core import optimizer\ndef new(): ...\noptimizer.get_megatron_optimizer = new",
    ),
    "a way": (
        Fate.BY_HAND,
        Reason.OFFICIAL_WAY,
        PATCH.format("", "TopKRouter.routing = new"),
    ),
    "never runs": (
        Fate.GOES,
        Reason.NEVER_RUNS,
        PATCH.format(
            "import megatron.core\nfrom packaging.version import Version\n",
            "if Version(megatron.core.__version__) < Version('0.14'):\n    TopKRouter.routing = new",
        ),
    ),
    "gone": (
        Fate.BY_HAND,
        Reason.GONE,
        (
            "from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler\n"
            "from megatron.core.transformer.moe.token_dispatcher import MoETokenDispatcher\n"
            "def new(self): ...\nMoETokenDispatcher.token_permutation = new"
        ),
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_reason(name: str) -> None:
    fate, reason, code = VERDICTS[name]
    assert [(one.fate, one.reason) for one in verdicts(code)] == [(fate, reason)]


def test_a_way_that_came_later() -> None:
    code = PATCH.format("", "def replay(self, logits):\n    return self.replay(logits)\nTopKRouter.routing = replay")
    (before,), (after,) = verdicts(code, "0.14.0"), verdicts(code)
    assert (before.reason, after.reason) == (Reason.NO_WAY_YET, Reason.OFFICIAL_WAY)
