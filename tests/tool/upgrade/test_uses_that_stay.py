"""Lines that use Megatron and of which a step between two real releases is to say nothing."""

import pytest
from between_releases import CONFIG, HELPER, KINDS, SAVE, STATE, affected

from mcore_unpatch.judge.statement import RAISES
from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

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
    "a new name with the same last word": ("0.16.1", "0.17.1", """
from megatron.core.transformer.multi_token_prediction import get_mtp_layer_spec
def make(spec):
    return get_mtp_layer_spec(spec, True)
"""),
    "set on the object": ("0.16.1", "0.17.0", CONFIG + """
def use(config: TransformerConfig):
    setattr(config, "moe_extended_tp", True)
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


MIXIN = """
class Mixin:
    def f(self):
        self.moe_extended_tp = 1
class Mine(Mixin, TransformerConfig): ...
"""


@pytest.mark.parametrize(
    ("path", "text", "counts"),
    [
        ("b.py", "def put(config):\n    config.moe_extended_tp = True\n", True),
        ("b.py", "def patched(self):\n    self.moe_extended_tp = True\n", True),
        ("b.py", f"{CONFIG}class Mine(TransformerConfig):\n    def f(self):\n        self.moe_extended_tp = 1\n", True),
        ("b.py", f"{CONFIG}{MIXIN}", True),
        ("b.py", "class Other:\n    def f(self, config):\n        self.moe_extended_tp = 1\n", False),
        ("tests/test_b.py", "def put(config):\n    config.moe_extended_tp = True\n", False),
    ],
)
def test_a_field_that_is_set_elsewhere_stays_where_the_object_may_be_the_same(
    path: str, text: str, counts: bool
) -> None:
    asks = f"{CONFIG}def use(config: TransformerConfig):\n    return config.moe_extended_tp\n"
    files = {"a.py": asks.encode(), path: text.encode()}
    project = Project(files.__contains__, files.__getitem__)
    said = uses_of(files, project, known.model("0.16.1"), known.model("0.17.0")).affected
    assert [use.kind for use in said] == ([] if counts else [RAISES])
