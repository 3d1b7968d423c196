"""What to write in place of a name that is gone."""

import pytest
from between_releases import HELPER, KINDS, affected
from checking import small_release

from mcore_unpatch.judge.instead import nth
from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of


def test_what_took_the_place_of_a_name_is_told_by_those_who_called_it() -> None:
    text = """
from megatron.core.optimizer.optimizer import MegatronOptimizer
print(MegatronOptimizer.get_main_grads_for_grad_norm)
"""
    (use,) = affected(text, "0.18.2", "0.19.2")
    assert use.instead == "`MegatronOptimizer.get_grads_for_grad_norm` is the closest match"


def test_what_took_the_place_of_a_name_is_told_by_its_text() -> None:
    before = b'''
from dataclasses import dataclass
def go(a):
    """Deprecated: use `walk` instead."""
    return a + 1
@dataclass
class Config:
    fast: bool = False
    """DEPRECATED and replaced by speed."""
'''
    after = b"""
def walk(a):
    return [a]
class Config:
    speed: int = 1
"""
    models = [
        build(LIBRARY, label, {"megatron/core/__init__.py": b"", "megatron/core/work.py": text}.items())
        for label, text in (("0.30.0", before), ("0.31.0", after))
    ]
    text = b"from megatron.core import work\nprint(work.go, work.Config.fast)\n"
    uses = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), *models).affected
    assert [use.instead for use in uses] == [
        "`work.walk` is the closest match",
        "`Config.speed` is the closest match",
    ]


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("datasets.megatron_tokenizer.MegatronTokenizer", "0.14.0", "0.15.0",
     "`megatron_tokenizer.MegatronLegacyTokenizer` is the closest match"),
    ("datasets.megatron_tokenizer.MegatronTokenizer", "0.14.0", "0.19.2", ""),
    ("models.gpt.fine_grained_callables.PostProcessNode", "0.18.2", "0.19.2",
     "it is now `megatron.core.models.common.utils.PostProcessNode`"),
    ("distributed.custom_fsdp.fully_sharded_data_parallel.FullyShardedDataParallel", "0.12.0", "0.19.2",
     "it is now `megatron.core.distributed.fsdp.mcore_fsdp_adapter.FullyShardedDataParallel`"),
])  # fmt: skip
def test_a_class_is_elsewhere_only_if_it_is_like_the_one_of_that_name(name: str, old: str, new: str, said: str) -> None:
    """Half of its methods, or a base in common; a tokenizer of the same name that has neither is another one."""
    module, _, leaf = name.rpartition(".")
    (use,) = affected(f"from megatron.core.{module} import {leaf}\n", old, new)
    assert use.instead == said


def test_what_is_closest_to_a_name_says_why_the_call_does_not_fit() -> None:
    text = f"{HELPER}\ndef log(loss):\n    Log.save_loss_to_tracker(loss, 0, 1)\n"
    (use,) = affected(text, "0.18.2", "0.19.2")
    assert use.instead.startswith("`MTPLossLoggingHelper.save_metrics_to_tracker` is the closest match, but")


@pytest.mark.parametrize(("use", "match"), [
    ("return ModelType.encoder_and_decoder", True),
    ("assert kind != ModelType.encoder_and_decoder", False),
    ("return kind in (ModelType.encoder_and_decoder, None)", False),
])  # fmt: skip
def test_in_a_comparison_what_is_much_alike_is_no_match(use: str, match: bool) -> None:
    (told,) = affected(f"{KINDS}\ndef go(kind):\n    {use}\n", "0.16.0", "0.19.2")
    assert told.instead == ("`ModelType.encoder_or_decoder` is the closest match" if match else "")


def test_places_as_words() -> None:
    places = {
        0: "first",
        5: "sixth",
        6: "7th",
        10: "11th",
        12: "13th",
        20: "21st",
        21: "22nd",
        22: "23rd",
        110: "111th",
    }
    assert {index: nth(index) for index in places} == places


@pytest.mark.parametrize(("after", "said"), [
    ("def pad(size, by): return [size, by]\n", "`elsewhere.pad` is the closest match"),
    ("def pad(size): return [size]\n", ""),  # other parameters
    ("pad = 1\n", ""),
])  # fmt: skip
def test_a_name_that_lost_its_underscore_is_told(after: str, said: str) -> None:
    older = small_release("0.30.0", "def _pad(size, by): return size // by\n")
    newer = small_release("0.31.0", "", elsewhere=after)
    text = b"from megatron.core.utils import _pad\n"
    (use,) = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), older, newer).affected
    assert use.instead == said
