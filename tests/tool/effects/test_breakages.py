"""Breakages that users of Megatron reported, in the lines that broke: each is told, as far as source tells it."""

import pytest
from rooms import names_of

from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.records import Effect, Outcome
from mcore_unpatch.effects.uses import Uses
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder

ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
MTP = "from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer\n"
OPTIMIZER = "from megatron.core.optimizer import get_megatron_optimizer\n"

# The thread, the step, what is said of which name, and the lines.
PREDICTED: dict[str, tuple[str, str, Outcome, str, str]] = {
    "verl#3534": (
        "0.13.1",
        "0.15.3",
        Outcome.CALL_UNFIT,
        "initialize_model_parallel",
        (
            "from megatron.core import parallel_state as mpu\n"
            "def start():\n    mpu.initialize_model_parallel(pipeline_model_parallel_split_rank=None)"
        ),
    ),
    "AReaL#1010": (
        "0.13.1",
        "0.16.1",
        Outcome.CALL_UNFIT,
        "get_megatron_optimizer",
        (
            f"{OPTIMIZER}def build(config, model):\n"
            "    return get_megatron_optimizer(config, model, scale_lr_cond=None, lr_mult=1.0)"
        ),
    ),
    "verl#6927": (
        "0.16.1",
        "0.18.0",
        Outcome.NAME_GONE,
        "encoder_and_decoder",
        "from megatron.core.enums import ModelType\ndef build(model_type=ModelType.encoder_and_decoder): ...",
    ),
    "slime#1149": (
        "0.14.0",
        "0.16.1",
        Outcome.CALL_UNFIT,
        "get_megatron_optimizer",
        (
            f"{OPTIMIZER}def build(args, config, model):\n"
            "    return get_megatron_optimizer(config, model, None, None, 1.0, use_gloo_process_groups=args.gloo)"
        ),
    ),
    "ms-swift#9960": (
        "0.17.1",
        "0.16.1",
        Outcome.CALL_UNFIT,
        "PackedSeqParams",
        (
            "from megatron.core.packed_seq_params import PackedSeqParams\n"
            "def pack(total):\n    return PackedSeqParams(total_tokens=total, qkv_format='thd')"
        ),
    ),
    "ROLL f114dfb6": (
        "0.12.3",
        "0.13.1",
        Outcome.MODULE_GONE,
        "MoEAlltoAllSEQTokenDispatcher",
        "from megatron.core.transformer.moe.legacy_a2a_token_dispatcher import MoEAlltoAllSEQTokenDispatcher",
    ),
    "mbridge 375fc30": (
        "0.12.3",
        "0.13.1",
        Outcome.UNPACKED,
        "_adjust_key_value_for_inference",
        (
            "from megatron.core.transformer.attention import SelfAttention\n"
            "class Mine(SelfAttention):\n"
            "    def forward(self, a, b, c, d, e):\n"
            "        query, key, value, emb, mask = self._adjust_key_value_for_inference(a, b, c, d, e)"
        ),
    ),
    "mbridge 61c9f58": (
        "0.14.0",
        "0.15.3",
        Outcome.IMPORT_GONE,
        "ModelCommProcessGroups",
        "from megatron.core.process_groups_config import ModelCommProcessGroups",
    ),
    "mbridge 61c9f58, what overrides": (
        "0.14.0",
        "0.15.3",
        Outcome.NOT_TAKEN,
        "forward",
        (
            "from megatron.core.transformer.attention import SelfAttention\n"
            "class Mine(SelfAttention):\n"
            "    def forward(self, hidden_states, attention_mask, key_value_states=None, inference_context=None,\n"
            "                rotary_pos_emb=None, rotary_pos_cos=None, rotary_pos_sin=None, attention_bias=None,\n"
            "                packed_seq_params=None, sequence_len_offset=None, *, inference_params=None): ..."
        ),
    ),
    "mbridge e5e9e31": (
        "0.12.3",
        "0.13.1",
        Outcome.DEFAULT_CHANGED,
        "is_pipeline_first_stage",
        "from megatron.core import mpu\ndef first():\n    return mpu.is_pipeline_first_stage()",
    ),
    "verl#5155": (
        "0.15.3",
        "0.16.1",
        Outcome.NOT_TAKEN,
        "routing",
        f"{ROUTER}def patched_routing(self, logits): ...\nTopKRouter.routing = patched_routing",
    ),
    "verl#6648": (
        "0.16.1",
        "0.18.0",
        Outcome.UNPACKED,
        "_get_embeddings",
        (
            f"{MTP}def _get_embeddings(self, input_ids, position_ids, embedding, hidden_states, padding_mask=None):\n"
            "    return input_ids, position_ids, embedding(input_ids), hidden_states\n"
            "MultiTokenPredictionLayer._get_embeddings = _get_embeddings"
        ),
    ),
    "SkyRL#2257": (
        "0.16.1",
        "0.19.2",
        Outcome.MODULE_GONE,
        "AsyncCallsQueue",
        "from megatron.core.dist_checkpointing.strategies.base import AsyncCallsQueue",
    ),
    "NeMo#14594": (
        "0.13.1",
        "0.14.0",
        Outcome.CALL_UNFIT,
        "get_tensor_shapes",
        (
            "from megatron.core.pipeline_parallel.schedules import get_tensor_shapes\n"
            "def shapes(kind):\n"
            "    return get_tensor_shapes(rank=0, model_type=kind, seq_length=8, micro_batch_size=1,\n"
            "        decoder_seq_length=8, config=None, encoder_decoder_xattn=False)"
        ),
    ),
}
# A keyword that goes through a function or constructor of the repository, by `**`.
MISSED = ("mbridge 71cc4f0", "mcore-bridge#34")


def effects(code: str, old: str, new: str) -> list[Effect]:
    """What a step does to a file, to its patches and to its other uses."""
    names = names_of(code)
    patches = Finder(names).all()
    judge, release = Judge(names, patches), packed.details().release
    module = names.index.module("a.py")
    assert module is not None
    found = [one for patch in patches for one in judge.step(patch, release(old), release(new))]
    return found + Uses(judge).step(module, release(old), release(new))


@pytest.mark.parametrize("thread", PREDICTED)
def test_it_is_told(thread: str) -> None:
    old, new, kind, name, code = PREDICTED[thread]
    found = [one for one in effects(code, old, new) if one.kind == kind and one.cause.name.endswith(name)]
    assert found, effects(code, old, new)
    assert all(one.releases == (new,) for one in found), "it is new"


@pytest.mark.parametrize("thread", PREDICTED)
def test_it_is_not_told_where_nothing_changes(thread: str) -> None:
    old, _, kind, name, code = PREDICTED[thread]
    told = [one for one in effects(code, old, old) if one.kind == kind and one.releases == (old,)]
    assert not [one for one in told if one.cause.name.endswith(name)]
