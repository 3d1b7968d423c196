"""Kinds of effects that no fate has: one patch that has it, and one beside it that has not."""

import pytest
from rooms import names_of

from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.records import Effect, Outcome
from mcore_unpatch.effects.uses import Uses
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder

LOG = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper\n"
ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
TURNED = """\
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
{}def new(self, logits, padding_mask=None):
    return 1 if hasattr(MTPLossLoggingHelper, {!r}) else logits
TopKRouter.routing = new
"""
BUILT = """\
from megatron.core.transformer.attention import SelfAttention
class Mine(SelfAttention):
    def __init__(self, config, submodules, layer_number, attn_mask_type, cp_comm_type=None, pg_collection=None{}): ...
"""
SUPPLIED = """\
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
{}
def log():
    MTPLossLoggingHelper.save_loss_to_tracker()
"""

KINDS = {
    Outcome.NEW: (
        ("0.16.1", "0.19.2"),
        f"{LOG}def new(): ...\nMTPLossLoggingHelper.clean_metrics_in_tracker = new",
        f"{ROUTER}def new(self): ...\nTopKRouter.routing = new",
    ),
    Outcome.UNREAD: (
        ("0.16.1", "0.19.2"),
        "from megatron.training import training\ndef new(*args): ...\ntraining.train_step = new",
        f"{ROUTER}def new(self): ...\nTopKRouter.routing = new",
    ),
    Outcome.BRANCH_TURNED: (
        ("0.18.2", "0.19.2"),
        TURNED.format(ROUTER, "save_loss_to_tracker"),
        TURNED.format(ROUTER, "tracker"),
    ),
    # A spec builds it, and 0.18 gives it a name.
    Outcome.NOT_TAKEN: (("0.16.1", "0.19.2"), BUILT.format(""), BUILT.format(", name=None")),
    # What the file puts there itself is not missing.
    Outcome.NAME_GONE: (
        ("0.18.2", "0.19.2"),
        SUPPLIED.format("other = None"),
        SUPPLIED.format("def mine(): ...\nMTPLossLoggingHelper.save_loss_to_tracker = mine"),
    ),
}


def effects(code: str, old: str, new: str) -> list[Effect]:
    """What a step does to a file, to its patches and to its other uses."""
    names = names_of(code)
    patches = Finder(names).all()
    judge, release = Judge(names, patches), packed.details().release
    module = names.index.module("a.py")
    assert module is not None
    found = [one for patch in patches for one in judge.step(patch, release(old), release(new))]
    return found + Uses(judge).step(module, release(old), release(new))


@pytest.mark.parametrize("kind", KINDS)
def test_a_patch_that_has_it_and_one_that_has_not(kind: Outcome) -> None:
    (old, new), code, other = KINDS[kind]
    assert kind in [one.kind for one in effects(code, old, new)]
    assert kind not in [one.kind for one in effects(other, old, new)]
