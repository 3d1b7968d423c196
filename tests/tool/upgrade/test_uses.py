"""Lines that use Megatron without patching it, between two real releases."""

import re
import sys
import sysconfig
from pathlib import Path

import pytest
from between_releases import CONFIG, HELPER, KINDS, SAVE, STATE, affected
from checking import write_files
from command import CLEAN, unpatch

from mcore_unpatch.judge.statement import CHANGES, RAISES
from mcore_unpatch.megatron.layout import GONE_OPTIONS

ARGUMENTS = """
from megatron.training import get_args
def provide(args):
    return args.use_legacy_models
def build():
    args = get_args()
    return args.use_legacy_models or args.hidden_size
"""
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
    "another name in the same place": ("0.18.2", "0.19.2", "", "`is_sft`, which is gone: a new name, or something", """
from megatron.core.utils import get_batch_on_this_tp_rank
def batch(iterator, rest):
    return get_batch_on_this_tp_rank(iterator, True, *rest)
"""),
    "of a class in a module that became a package": ("0.16.1", "0.19.2", "AttributeError", "get_next_data_parallel", """
from megatron.core.inference.data_parallel_inference_coordinator import DataParallelInferenceCoordinator
def use(coordinator: DataParallelInferenceCoordinator):
    return coordinator.get_next_data_parallel_rank(), coordinator.stop, coordinator.of_our_own
"""),
    "a field of a model's config": ("0.16.1", "0.19.2", "AttributeError", "moe_use_legacy_grouped_gemm", """
from megatron.core.utils import get_model_config
def old(model):
    config = get_model_config(model)
    return config.num_layers, config.moe_use_legacy_grouped_gemm
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
    "an argument that no option makes": ("0.17.1", "0.18.2", "AttributeError", "`args.use_legacy_models`", ARGUMENTS),
}  # fmt: skip
# What is put where a test replaces it


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
    uses = unpatch("upgrade", "--from", "0.18", "--output-format", "json", cwd=tmp_path).json["uses"]
    assert [(use["path"], use["line"], use["in_test"]) for use in uses] == [
        ("a.py", 2, False),
        ("tests/test_a.py", 2, True),
    ]


@pytest.mark.parametrize(
    "made",
    [
        'parser.add_argument("--use-legacy-models")',
        "args.use_legacy_models = False",
        "for name in names: setattr(args, name, None)",
    ],
)
def test_an_argument_that_the_repository_makes_is_there(made: str) -> None:
    assert affected(f"{ARGUMENTS}def more(parser, args, names):\n    {made}\n", "0.17.1", "0.18.2") == []


def test_options_that_are_gone_are_in_no_release_since() -> None:
    for since, folder in (((0, 18), Path(sys.prefix) / "mcore-0.18.2"), ((0, 19), Path(sysconfig.get_path("purelib")))):
        source = "".join(file.read_text() for file in (folder / "megatron/training").rglob("*.py"))
        assert [name for name in GONE_OPTIONS[since] if re.search(rf"\bargs\.{name}\b", source)] == []
