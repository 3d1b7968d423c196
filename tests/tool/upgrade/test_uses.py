"""Lines that use Megatron without patching it, between two real releases."""

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch

from mcore_unpatch.judge.statement import CHANGES, RAISES, SPEED, Statement
from mcore_unpatch.library.build import build
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

HELPER = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Log\n"
CONFIG = "from megatron.core.transformer.transformer_config import TransformerConfig\n"
STATE = "from megatron.core import parallel_state as mpu\n"
KINDS = "from megatron.core.enums import ModelType\n"
SAVE = "from megatron.core.dist_checkpointing.serialization import save\n"
OWN = (
    CONFIG
    + """
from dataclasses import dataclass
@dataclass
class Between(TransformerConfig):
    extra: int = 1
"""
)
# old, new, the exception (none for what changes silently), words of the sentence, a file
AFFECTED = {
    "ruled out, and set anew": ("0.16.1", "0.19.2", "AttributeError", "encoder_and_decoder", KINDS + """
def make(kind, other):
    assert kind != other
    kind = kind.parent
    if kind == other:
        return ModelType.encoder_and_decoder
"""),
    "ruled out of an object that a call may change": ("0.16.1", "0.19.2", "AttributeError", "encoder_and", KINDS + """
def make(self):
    assert self.kind is None
    self.build()
    if self.kind is not None:
        return ModelType.encoder_and_decoder
"""),
    "behind a test of what may be anything": ("0.16.1", "0.19.2", "AttributeError", "encoder_and_decoder", KINDS + """
def make(kind, table):
    if kind == table.get("encoder_and_decoder", None):
        return ModelType.encoder_and_decoder
"""),
    "state that is set, and gone": ("0.12.0", "0.19.2", "", "Megatron does not read what is set here", STATE + """
def start(rank):
    mpu._PIPELINE_MODEL_PARALLEL_SPLIT_RANK = rank
"""),
    "a part of a call": ("0.18.2", "0.19.2", "TypeError", "common_strategy", SAVE + """
from functools import partial
put = partial(save, common_strategy=None)
"""),
    "a dict that is written out in the call": ("0.18.2", "0.19.2", "TypeError", "common_strategy", SAVE + """
def put(state):
    save(state, "d", **{"common_strategy": None})
"""),
    "a dict that is added to": ("0.18.2", "0.19.2", "TypeError", "common_strategy", SAVE + """
def put(state):
    rest = {}
    rest.update(common_strategy=None)
    save(state, "d", **rest)
"""),
    "through a function that passes the rest on": ("0.18.2", "0.19.2", "TypeError", "common_strategy", SAVE + """
def put(state, folder, **rest):
    return save(state, folder, **rest)
put({}, "d", common_strategy=None)
"""),
    "a copy of a config": ("0.16.1", "0.19.2", "TypeError", "moe_use_legacy_grouped_gemm", CONFIG + """
from dataclasses import replace
def old(config: TransformerConfig):
    return replace(config, moe_use_legacy_grouped_gemm=True)
"""),
    "a lambda": ("0.18.2", "0.19.2", "AttributeError", "clean_loss_in_tracker", HELPER + """
clean = lambda: Log.clean_loss_in_tracker()
"""),
    "a member of an enum by its name": ("0.16.1", "0.19.2", "KeyError", "encoder_and_decoder", KINDS + """
kind = ModelType["encoder_and_decoder"]
"""),
    "a name of a star": ("0.16.1", "0.19.2", "NameError", "has_separate_all_gather_group", """
from megatron.core.parallel_state import *
has_separate_all_gather_group()
"""),
    "an import": ("0.18.2", "0.19.2", "ImportError", "strategies.base", """
from megatron.core.dist_checkpointing.strategies import base
"""),
    "an import inside a function": ("0.16.1", "0.17.0", "ImportError", "async_calls", """
def save():
    from megatron.core.dist_checkpointing.strategies.base import async_calls
"""),
    "a method of a class": ("0.18.2", "0.19.2", "AttributeError", "reduce_loss_in_tracker", HELPER + """
def log():
    Log.reduce_loss_in_tracker()
"""),
    "an attribute of a module on the way": ("0.18.2", "0.19.2", "AttributeError", "strategies.base", """
import megatron.core.dist_checkpointing.strategies as strategies
queue = strategies.base.async_calls
"""),
    "a mock that is not to create it": ("0.18.2", "0.19.2", "AttributeError", "reduce_loss_in_tracker", HELPER + """
from unittest import mock
def test():
    mock.patch.object(Log, "reduce_loss_in_tracker", create=False)
"""),
    "a new parameter that Megatron sets to what was": ("0.16.1", "0.17.1", "", "may be what was done before", """
from megatron.core.dist_checkpointing import load, save
def keep(state):
    save(state, "here", async_sharded_save=True)
    load(state, "here")
"""),
    "behind a key of the file's own": ("0.18.2", "0.19.2", "AttributeError", "clean_loss_in_tracker", HELPER + """
def log():
    if "values" in Log.tracker:
        Log.clean_loss_in_tracker()
def put(value):
    Log.tracker["values"] = value
"""),
    "behind a key that Megatron sets": ("0.18.2", "0.19.2", "AttributeError", "clean_loss_in_tracker", HELPER + """
def log():
    tracker = Log.tracker
    if "reduce_group" in tracker or "values" in tracker:
        Log.clean_loss_in_tracker()
"""),
    "getattr": ("0.18.2", "0.19.2", "AttributeError", "reduce_loss_in_tracker", HELPER + """
reduce = getattr(Log, "reduce_loss_in_tracker")
"""),
    "a keyword": ("0.13.1", "0.14.0", "TypeError", "pipeline_model_parallel_split_rank", STATE + """
mpu.initialize_model_parallel(2, pipeline_model_parallel_split_rank=None)
"""),
    "a field of a config": ("0.16.1", "0.17.0", "TypeError", "moe_extended_tp", CONFIG + """
def make(**rest):
    return TransformerConfig(num_layers=1, moe_extended_tp=True, **rest)
"""),
    "a field of a subclass of it": ("0.16.1", "0.17.0", "TypeError", "passes `moe_extended_tp`,", CONFIG + """
from dataclasses import dataclass

@dataclass
class Mine(TransformerConfig):
    extra: int = 1

config = Mine(num_layers=1, hidden_size=8, num_attention_heads=1, extra=2, moe_extended_tp=True)
"""),
    "a field that no class between declares": ("0.16.1", "0.17.0", "TypeError", "passes `moe_extended_tp`,", """
from dataclasses import dataclass
from names import Between
@dataclass
class Mine(Between):
    more: int = 1
config = Mine(hidden_size=8, num_attention_heads=1, extra=2, more=3, moe_extended_tp=True)
"""),
    "a read field": ("0.16.1", "0.17.0", "AttributeError", "moe_extended_tp", CONFIG + """
def read(config: TransformerConfig):
    return config.moe_extended_tp
"""),
    "a key of a dictionary": ("0.16.1", "0.17.0", "TypeError", "passes `moe_extended_tp`,", CONFIG + """
def make():
    base = {"num_layers": 1, "moe_extended_tp": True}
    return TransformerConfig(**base)
"""),
    "through a file of the repository": ("0.13.1", "0.14.0", "TypeError", "split_rank", """
from names import mpu
mpu.initialize_model_parallel(2, pipeline_model_parallel_split_rank=None)
"""),
    "all that is passed is handed on": ("0.16.1", "0.19.2", "TypeError", "`moe_use_legacy_grouped_gemm`", """
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

def make():
    return get_gpt_layer_local_spec(None, False, moe_use_legacy_grouped_gemm=True)
"""),
    "a default": ("0.15.3", "0.16.1", "", "`mtp_loss_scaling_factor`", CONFIG + """
config = TransformerConfig(num_layers=1)
"""),
    "a position": ("0.18.2", "0.19.2", "", "the second value passed to `get_data_parallel_group`", """
from megatron.core import parallel_state

def group():
    return parallel_state.get_data_parallel_group(False, True)
"""),
    "an override that Megatron passes more": ("0.17.1", "0.18.2", "TypeError", "does not take", """
from megatron.core.models.gpt.gpt_model import GPTModel

class Mine(GPTModel):
    def _postprocess(
        self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
        mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None, inference_params=None,
        packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None, extra_block_kwargs=None,
        inference_context=None, is_spec_decode=None, padding_mask=None,
    ):
        return hidden_states
"""),
    "super() that takes less": ("0.16.1", "0.19.2", "TypeError", "`materialize_only_last_token_logits`", """
from megatron.core.inference.contexts.base_context import BaseInferenceContext

class Mine(BaseInferenceContext):
    def __init__(self):
        super().__init__(materialize_only_last_token_logits=True)

    def is_static_batching(self):
        return True
"""),
}  # fmt: skip
# What is put where a test replaces it
FAKED = {
    "a name that monkeypatch sets": ("0.18.2", "0.19.2", SAVE + """
import megatron.core.dist_checkpointing.serialization as module
def test(monkeypatch):
    monkeypatch.setattr(module, "save", lambda *args, **kwargs: None)
    module.save({}, "d", common_strategy=None)
"""),
    "a name that a mock stands for": ("0.18.2", "0.19.2", SAVE + """
from unittest import mock
def test():
    with mock.patch("megatron.core.dist_checkpointing.serialization.save") as save:
        from megatron.core.dist_checkpointing import serialization
        serialization.save({}, "d", common_strategy=None)
"""),
    "a name that a mock of an object stands for": ("0.18.2", "0.19.2", """
from unittest import mock
import megatron.core.dist_checkpointing.serialization as module
@mock.patch.object(module, "save")
def test(save):
    module.save({}, "d", common_strategy=None)
"""),
    "an annotation of a mock": ("0.16.1", "0.19.2", CONFIG + """
from unittest.mock import MagicMock
def test():
    config: TransformerConfig = MagicMock()
    assert config.moe_use_legacy_grouped_gemm
"""),
    "a field of a fake that holds a mock": ("0.16.1", "0.19.2", CONFIG + """
from unittest.mock import Mock
class FakeModel:
    def __init__(self, config: TransformerConfig):
        self.config = config
def test():
    assert FakeModel(Mock()).config.moe_use_legacy_grouped_gemm
"""),
}  # fmt: skip
# What is not said: guarded, not Megatron's, or as it was.
QUIET = {
    "an import for types": ("0.18.2", "0.19.2", """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from megatron.core.models.gpt.fine_grained_callables import PostProcessNode
"""),
    "an exception that is suppressed": ("0.18.2", "0.19.2", HELPER + """
import contextlib
def clean():
    with contextlib.suppress(AttributeError):
        Log.clean_loss_in_tracker()
"""),
    "a choice that is read only where a switch is on": ("0.18.2", "0.19.2", SAVE + """
save({}, "d", async_sharded_save=False)
save({}, "d")
"""),
    "a keyword that is taken out before the rest is passed on": ("0.18.2", "0.19.2", SAVE + """
def put(state, folder, **rest):
    rest.pop("common_strategy")
    return save(state, folder, **rest)
put({}, "d", common_strategy=None)
"""),
    "state that is set, and there": ("0.12.0", "0.19.2", STATE + """
def start(group):
    mpu._TENSOR_MODEL_PARALLEL_GROUP = group
"""),
    "state that is set only on a release that has it": ("0.12.0", "0.19.2", STATE + """
def start(rank):
    if hasattr(mpu, "_PIPELINE_MODEL_PARALLEL_SPLIT_RANK"):
        mpu._PIPELINE_MODEL_PARALLEL_SPLIT_RANK = rank
"""),
    "a method that an object was asked for": ("0.17.1", "0.19.2", """
from megatron.core.transformer.moe.token_dispatcher import _DeepepManager
def install(manager: _DeepepManager):
    original = manager.setup_metadata
    def setup(routing_map, probs):
        original(routing_map, probs)
    return setup
"""),
    "caught": ("0.18.2", "0.19.2", """
try:
    from megatron.core.dist_checkpointing.strategies import base
except ImportError:
    base = None
def use():
    return base.async_calls if base else None
"""),
    "asked first": ("0.18.2", "0.19.2", HELPER + """
if hasattr(Log, "reduce_loss_in_tracker"):
    Log.reduce_loss_in_tracker()
"""),
    "on another release": ("0.18.2", "0.19.2", HELPER + """
import megatron.core
from packaging.version import parse
if parse(megatron.core.__version__) < parse("0.19"):
    Log.reduce_loss_in_tracker()
"""),
    "getattr with a default": ("0.18.2", "0.19.2", HELPER + """
reduce = getattr(Log, "reduce_loss_in_tracker", None)
"""),
    "a member that the class lacks": ("0.16.1", "0.19.2", KINDS + """
def make(kind):
    if kind == getattr(ModelType, "encoder_and_decoder", None):
        return ModelType.encoder_and_decoder
"""),
    "ruled out above": ("0.16.1", "0.19.2", KINDS + """
def make(kind, other):
    assert kind != other and other
    if not kind == other:
        return None
    return ModelType.encoder_and_decoder
"""),
    "fields of a class between, in another file": ("0.16.1", "0.17.0", """
from dataclasses import dataclass
from names import Between
@dataclass
class Mine(Between):
    moe_extended_tp: bool = False
config = Mine(hidden_size=8, num_attention_heads=1, extra=2, moe_extended_tp=True)
other = Mine(num_layers=2, hidden_size=8, num_attention_heads=1)
"""),
    "a default that is written in another way": ("0.13.1", "0.14.0", CONFIG + """
config = TransformerConfig(num_layers=1)
"""),
    "a parameter of that name": ("0.18.2", "0.19.2", HELPER + """
def log(Log):
    Log.reduce_loss_in_tracker()
"""),
    "one of two imports": ("0.18.2", "0.19.2", """
try:
    from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue as Queue
except ImportError:
    from megatron.core.dist_checkpointing.strategies.nowhere import AsyncCallsQueue as Queue
queue = Queue()
"""),
    "on both releases": ("0.18.2", "0.19.0", """
def later():
    from megatron.core.nowhere import nothing
    nothing.at_all(1)
"""),
    "a key that is taken out": ("0.16.1", "0.17.0", CONFIG + """
def make():
    base = {"num_layers": 1, "moe_extended_tp": True}
    base.pop("moe_extended_tp")
    return TransformerConfig(**base)
"""),
    "set on the object": ("0.16.1", "0.17.0", CONFIG + """
def use(config: TransformerConfig):
    config.moe_extended_tp = True
    return config.moe_extended_tp
"""),
    "set by its own class": ("0.16.1", "0.17.0", CONFIG + """
class Mine(TransformerConfig):
    def __post_init__(self):
        self.moe_extended_tp = 1
    def use(self):
        return self.moe_extended_tp
"""),
}  # fmt: skip


def affected(text: str, old: str, new: str, path: str = "a.py") -> list[Statement]:
    files = {path: text.encode(), "names.py": (STATE + OWN).encode()}
    project = Project(files.__contains__, files.__getitem__)
    return uses_of([path, "names.py"], project, known.model(old), known.model(new)).affected


@pytest.mark.parametrize("what", AFFECTED)
def test_a_use_that_the_step_affects(what: str) -> None:
    old, new, exception, words, text = AFFECTED[what]
    uses = [use for use in affected(text, old, new) if use.kind == (RAISES if exception else CHANGES)]
    assert [use.exception for use in uses] == [exception]
    assert words in uses[0].text


def test_of_what_stands_behind_a_key_that_is_gone_only_the_key_is_told() -> None:
    text = f"""{HELPER}
def log():
    tracker = Log.tracker
    if "values" in tracker:
        Log.clean_loss_in_tracker()
"""
    (use,) = affected(text, "0.18.2", "0.19.2")
    assert (use.kind, use.line) == (CHANGES, 4)
    assert use.text.startswith("reads `values` of `tracker`, which no code of megatron-core 0.19.2 sets")


def test_a_default_that_is_about_speed_is_told_apart() -> None:
    text = """
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy
strategy = TorchDistSaveShardedStrategy()
"""
    (use,) = affected(text, "0.16.1", "0.19.2")
    assert use.kind == SPEED
    assert "`thread_count` of `TorchDistSaveShardedStrategy`" in use.text


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


@pytest.mark.parametrize("what", QUIET)
def test_nothing_is_said(what: str) -> None:
    old, new, text = QUIET[what]
    assert affected(text, old, new) == []


@pytest.mark.parametrize("what", FAKED)
def test_nothing_is_said_of_a_fake_and_all_of_what_it_stands_for(what: str) -> None:
    old, new, text = FAKED[what]
    assert affected(text, old, new, "test_a.py") == []
    real = text.replace("monkeypatch.setattr", "print").replace("patch", "print").replace("Mock(", "make(")
    assert [use.kind for use in affected(real, old, new, "test_a.py")] == [RAISES]


@pytest.mark.parametrize("what", AFFECTED)
def test_nothing_is_said_of_a_release_and_itself(what: str) -> None:
    _, new, _, _, text = AFFECTED[what]
    assert affected(text, new, new) == []


def test_the_screen_folds_tests_and_says_what_was_read(tmp_path: Path) -> None:
    broken = HELPER + "Log.reduce_loss_in_tracker()\n"
    write_files(tmp_path, {"a.py": broken, "tests/test_a.py": broken})
    result = unpatch("upgrade", "--from", "0.18", cwd=tmp_path)
    assert result.code == CLEAN
    assert "Will raise (2)\n  a.py:2  AttributeError when the file is imported\n" in result.out
    assert "and 1 in tests; --all lists them" in result.out
    assert "Read: 4 uses of Megatron in 2 files and 0 patches." in result.out
    assert "tests/test_a.py:2  " in unpatch("upgrade", "--from", "0.18", "--all", cwd=tmp_path).out
    markdown = unpatch("upgrade", "--from", "0.18", "--output-format", "markdown", cwd=tmp_path).out
    assert "| `a.py:2` | **AttributeError when the file is imported**<br>" in markdown
    uses = unpatch("upgrade", "--from", "0.18", "--output-format", "json", cwd=tmp_path).json["uses"]
    assert [(use["path"], use["line"], use["in_test"]) for use in uses] == [
        ("a.py", 2, False),
        ("tests/test_a.py", 2, True),
    ]


def test_what_the_older_release_does_not_carry_is_said_not_to_be_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "from megatron.training import get_args\nargs = get_args()\n"})
    out = " ".join(unpatch("upgrade", "--from", "0.16", cwd=tmp_path).out.split())
    assert "Not read: what changed for 2 uses of megatron.training, which the wheel of megatron-core 0.16.1 " in out
    assert "Nothing that was read needs work" in out
    out = " ".join(unpatch("upgrade", "--from", "0.15", "--to", "0.16.1", cwd=tmp_path).out.split())
    assert "Not read: 2 uses of megatron.training, which the wheels of megatron-core 0.15.3 and 0.16.1 do not " in out
