"""Every kind of sentence that the judge says: one patch of which it is said, and one next to it of which it is not."""

import tempfile
from pathlib import Path

import pytest
from checking import found_in, releases, write_files
from command import unpatch

from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.run import upgrade

GPT = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
MTP = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper, MultiTokenPredictionLayer\n"
ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
DSA = "from megatron.core.transformer.experimental_attention_variant import dsa\n"
GROUP = "from megatron.core import parallel_state\n"
WRAPPED = """\
{head}_old = {target}
def new(self, *args, **kwargs):
    {body}
    return _old(self, *args, **kwargs)
{target} = new
"""
# The original is a parameter of what makes the replacement.
BLOCK = """\
from megatron.core.transformer.transformer_block import TransformerBlock
def make(old):
    def new(self, states, mask, context, context_mask, emb, cos, sin, bias):
        return old(self, states, mask, context, context_mask, emb, cos, sin, {})
    return new
TransformerBlock.forward = make(TransformerBlock.forward)
"""
TURNED = f"""\
import inspect
{ROUTER}{MTP}from megatron.core.transformer.multi_token_prediction import process_mtp_loss
def new(self, logits):
    return 1 if {{}} else logits
TopKRouter.routing = new
"""
HOOKED = "def new(self, hidden_states, output_processor=None, **rest):\n    return {}\nGPTModel._postprocess = new\n"


def wrapped(head: str, target: str, body: str) -> str:
    return WRAPPED.format(head=head, target=target, body=body)


def said(source: str, old: str, new: str) -> str:
    """All that is said of the patches of one file."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), {"a.py": source})
        fates = upgrade([Path(folder)], ScanOptions(jobs=1), *releases(old, new)).fates
    return "\n".join(reason for fate in fates for reason in fate.reasons)


# One way through it does not come to the original.
AROUND = """\
import torch
from megatron.core.tensor_parallel.layers import VocabParallelEmbedding
_old = VocabParallelEmbedding.forward
def new(self, ids):
    with torch.no_grad():
        if ids is None:
            return None
        for _ in ():
            continue
        if ids.numel():
            result = {}
        else:
            result = _old(self, ids)
    return result + 1
VocabParallelEmbedding.forward = new
"""
FORWARD = """\
from megatron.core.models.gpt.gpt_model import GPTModel
_old = GPTModel.forward
def new(self, input_ids, position_ids, attention_mask, decoder_input=None, labels=None, inference_context=None,
        packed_seq_params=None, extra_block_kwargs=None, runtime_gather_output=None, *, inference_params=None,
        loss_mask=None{}):
    return _old(self, input_ids, position_ids, attention_mask, labels=labels{})
GPTModel.forward = new
"""
WRAPPED_BY_NAME = """\
import wrapt
def new({}):
    return wrapped(*args, **kwargs)
wrapt.{}("megatron.core.pipeline_parallel.schedules", "forward_step", new)
"""

# What is said, the two releases, and a patch of each kind.
KINDS = {
    "body changed; line 14 returns without a call of the original": (
        "0.18.0",
        "0.19.2",
        AROUND.format("torch.embedding(self.weight, ids)"),
        AROUND.format("_old(self, ids)"),
    ),
    "takes no `output_processor`: a TypeError for whoever passes the output hook": (
        "0.17.1",
        "0.18.2",
        FORWARD.format("", ""),
        FORWARD.format(", **rest", ", **rest"),
    ),
    "lacks `is_first_microbatch`": (
        "0.17.1",
        "0.18.2",
        WRAPPED_BY_NAME.format("wrapped, args, kwargs", "register_patch"),
        WRAPPED_BY_NAME.format("wrapped, instance, args, kwargs", "wrap_function_wrapper"),
    ),
    "passes 17 values by position, where 2 fit, which `Mine.apply` does not take: TypeError": (
        "0.18.2",
        "0.19.2",
        f"{DSA}class Mine:\n    @staticmethod\n    def apply(q, weights): ...\ndsa.FusedDSAIndexerLoss = Mine\n",
        f"{DSA}class Mine:\n    @staticmethod\n    def apply(q, *rest): ...\ndsa.FusedDSAIndexerLoss = Mine\n",
    ),
    "which `GPTModel.forward` passes: TypeError": (
        "0.17.1",
        "0.18.2",
        f"{GPT}def new(self, hidden_states, input_ids): ...\nGPTModel._postprocess = new\n",
        f"{GPT}def new(self, hidden_states, **rest):\n    return rest\nGPTModel._postprocess = new\n",
    ),
    "does not pass `forward_func`, which `new` requires: TypeError": (
        "0.17.1",
        "0.18.2",
        f"{MTP}def new(self, forward_func, **rest): ...\nMultiTokenPredictionLayer._checkpointed_forward = new\n",
        f"{MTP}def new(self, forward_func=None, **rest): ...\nMultiTokenPredictionLayer._checkpointed_forward = new\n",
    ),
    "unpacks 5: ValueError": (
        "0.17.1",
        "0.18.2",
        f"{MTP}def new(self, **rest):\n    return 1, 2, 3, 4\nMultiTokenPredictionLayer._get_embeddings = new\n",
        f"{MTP}def new(self, **rest):\n    return 1, 2, 3, 4, 5\nMultiTokenPredictionLayer._get_embeddings = new\n",
    ),
    "does not exist after megatron-core 0.18.2: AttributeError when `new` is called": (
        "0.18.2",
        "0.19.2",
        wrapped(ROUTER + MTP, "TopKRouter.routing", "MTPLossLoggingHelper.save_loss_to_tracker(1, 2, 3)"),
        wrapped(
            ROUTER + MTP,
            "TopKRouter.routing",
            "if hasattr(MTPLossLoggingHelper, 'save_loss_to_tracker'):\n"
            "        MTPLossLoggingHelper.save_loss_to_tracker(1, 2, 3)",
        ),
    ),
    "ImportError when the file is imported": (
        "0.18.2",
        "0.19.2",
        wrapped(
            f"{ROUTER}from megatron.core.models.gpt.fine_grained_callables import PostProcessNode\n",
            "TopKRouter.routing",
            "pass",
        ),
        wrapped(
            f"{ROUTER}try:\n    from megatron.core.models.gpt.fine_grained_callables import PostProcessNode\n"
            "except ImportError:\n    PostProcessNode = None\n",
            "TopKRouter.routing",
            "pass",
        ),
    ),
    "which megatron-core 0.18.2 does not take: TypeError": (
        "0.17.1",
        "0.18.2",
        wrapped(ROUTER + GROUP, "TopKRouter.routing", "parallel_state.get_data_parallel_group(none_such=True)"),
        wrapped(ROUTER + GROUP, "TopKRouter.routing", "parallel_state.get_data_parallel_rank()"),
    ),
    "is `with_gtp_remat` on megatron-core 0.19.2, and was `partial_data_parallel`": (
        "0.18.2",
        "0.19.2",
        wrapped(ROUTER + GROUP, "TopKRouter.routing", "parallel_state.get_data_parallel_group(True, True)"),
        wrapped(ROUTER + GROUP, "TopKRouter.routing", "parallel_state.get_data_parallel_group(True)"),
    ),
    "in `**rest`, which `GPTModel.forward` of megatron-core 0.18.2 passes": (
        "0.17.1",
        "0.18.2",
        f"{GPT}def new(self, hidden_states, **rest):\n    return hidden_states\nGPTModel._postprocess = new\n",
        f"{GPT}def new(self, hidden_states, **rest):\n    return other(**rest)\nGPTModel._postprocess = new\n",
    ),
    "hooks are silently dropped": (
        "0.18.0",
        "0.19.2",
        GPT + HOOKED.format("rest"),
        GPT + HOOKED.format("output_processor(**rest)"),
    ),
    "so no code of Megatron calls the replacement": (
        "0.18.2",
        "0.19.2",
        f"{MTP}MTPLossLoggingHelper.save_loss_to_tracker = print\n",
        f"{MTP}MTPLossLoggingHelper.save_metrics_to_tracker = print\n",
    ),
    "body changed; the replacement does not call the original": (
        "0.15.3",
        "0.16.1",
        f"{ROUTER}def new(self, logits, *args, **kwargs):\n    return logits\nTopKRouter.apply_z_loss = new\n",
        wrapped(ROUTER, "TopKRouter.apply_z_loss", "pass"),
    ),
    "the replacement has nothing of the original, and is called as before": (
        "0.18.2",
        "0.19.2",
        f"{ROUTER}def new(self, logits, *args, **kwargs):\n    return logits\nTopKRouter.routing = new\n",
        wrapped(ROUTER, "TopKRouter.routing", "pass"),
    ),
    "the replacement calls the original": (
        "0.18.2",
        "0.19.2",
        wrapped(ROUTER, "TopKRouter.routing", "pass"),
        f"{ROUTER}def new(self, out, *args, **kwargs):\n    return to_original_dtype(out)\nTopKRouter.routing = new\n",
    ),
    "the 8th value passed to `forward` is `rotary_pos_cos_sin`": (
        "0.14.0",
        "0.16.1",
        BLOCK.format("bias"),
        BLOCK.format("attention_bias=bias"),
    ),
    "TypeError on megatron-core 0.17+, only if `self.config.moe_router_force_biased is not None`": (
        "0.18.2",
        "0.19.2",
        "from megatron.core.transformer.moe import router\nrouter.apply_biased_logits = lambda: None\n",
        "from megatron.core.transformer.moe import router\nrouter.topk_routing_with_score_function = lambda: None\n",
    ),
    "and was not on 0.18.2: other code of yours runs": (
        "0.18.2",
        "0.19.2",
        TURNED.format("hasattr(MTPLossLoggingHelper, 'save_metrics_to_tracker')"),
        TURNED.format("'tp_group' in inspect.signature(process_mtp_loss).parameters"),
    ),
    "what it replaces is unchanged": (
        "0.18.0",
        "0.18.2",
        wrapped(ROUTER, "TopKRouter.apply_z_loss", "pass"),
        wrapped(ROUTER, "TopKRouter.none_such", "pass"),
    ),
}


ROTARY = "from megatron.core.{} import {} as m\ndef new(t, freqs, config, cu_seqlens=None): ...\n"
ROTARY += "m.apply_rotary_pos_emb = new\n"
MASKS = """\
from megatron.core.transformer.moe.token_dispatcher import _DeepepManager
_old = _DeepepManager.setup_metadata
def new(self, routing_map, probs, masks=None):
    if masks is None:
        return _old(self, routing_map, probs)
    return _old(self, routing_map, probs, masks)
_DeepepManager.setup_metadata = new
"""


class TestWhoCallsIt:
    def test_callers_of_a_name_are_those_who_have_it_from_its_module(self) -> None:
        embeddings = "models.common.embeddings"
        passed = said(ROTARY.format("transformer", "multi_latent_attention"), "0.18.2", "0.19.2")
        assert "`MLASelfAttention.get_query_key_value_tensors`" in passed and "DynamicInferenceContext" not in passed
        assert "DynamicInferenceContext" in said(ROTARY.format(embeddings, "rope_utils"), "0.18.2", "0.19.2")
        assert "TypeError" not in said(ROTARY.format(embeddings, "rotary_pos_embedding"), "0.18.2", "0.19.2")

    def test_what_no_caller_passes_leads_nowhere(self) -> None:
        assert "TypeError" not in said(MASKS, "0.16.1", "0.19.2")
        direct = MASKS.replace("if masks is None:", "if probs is None:")
        assert "passes 3 values by position, where 2 fit" in said(direct, "0.16.1", "0.19.2")
        assert "TypeError" in said(f"{MASKS}_DeepepManager().setup_metadata(1, 2, masks=3)\n", "0.16.1", "0.19.2")

    def test_an_object_that_inference_may_never_see(self) -> None:
        source = f"{GPT}def new(self, input_ids, position_ids, attention_mask=None, decoder_input=None, labels=None, "
        source += "inference_context=None, packed_seq_params=None, extra_block_kwargs=None, loss_mask=None): ...\n"
        one = said(f"{source}def put(model: GPTModel):\n    model.forward = new.__get__(model)\n", "0.18.2", "0.19.2")
        assert one.startswith("lacks `runtime_gather_output`") and "once Megatron's own inference is given this" in one
        assert "once" not in said(f"{source}GPTModel.forward = new\n", "0.18.2", "0.19.2")


OWN_METHODS = """\
class Trainer:
    def groups(self, chunks, config, overrides): return []
    def too_few(self, chunks, config): return []
    @staticmethod
    def static(chunks, config, overrides): return []
    def install(self):
        optimizer._get_param_groups = {}
"""


@pytest.mark.parametrize(
    ("value", "raises"),
    [
        ("self.groups", False),
        ("Trainer().groups", False),
        ("self.too_few", True),
        ("self.static", False),
        ("Trainer.static", False),
        ("Trainer.groups", True),
    ],
)
def test_a_method_is_given_its_own_object(value: str, raises: bool) -> None:
    findings = found_in(f"from megatron.core import optimizer\n{OWN_METHODS.format(value)}", target=(0, 19, 2))
    assert [("TypeError" in finding.message) for finding in findings] == [raises]


IN_PLACE = """\
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_block import TransformerBlock
block, whole = TransformerBlock.forward, GPTModel.forward
def with_key(self, hidden_states, attention_mask, key=None, **kwargs):
    return block(self, hidden_states, attention_mask, **kwargs)
def forward(self, *args, key=None, **kwargs):
    real = self.decoder.forward
    def keyed(*inner, **others):
        return real(*inner, key=key, **others)
    self.decoder.forward = keyed
    try:
        return whole(self, *args, **kwargs)
    finally:
        self.decoder.forward = real
GPTModel.forward = forward
"""


def test_a_part_of_the_object_has_its_own_forward() -> None:
    """What it had is no original of what the model had, and is what was put on its class."""
    findings = found_in(f"{IN_PLACE}TransformerBlock.forward = with_key\n", target=(0, 19, 2))
    assert [finding.line for finding in findings if "passes `key`, which" in finding.message] == []


@pytest.mark.parametrize("words", KINDS)
def test_it_is_said_where_it_is_so_and_nowhere_else(words: str) -> None:
    old, new, so, not_so = KINDS[words]
    assert words in said(so, old, new)
    assert words not in said(not_so, old, new)


def test_what_several_releases_do_alike_is_said_once(tmp_path: Path) -> None:
    body = "from megatron.core.transformer.multi_token_prediction import roll_tensor\n    roll_tensor(1, cp_group=None)"
    named = '[tool.unpatch]\nmegatron = ["0.12.1", "0.12.2", "0.13.0"]\n'
    write_files(tmp_path, {"pyproject.toml": named, "a.py": wrapped(GPT, "GPTModel.forward", body)})
    (finding,) = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert finding["message"].count("the call of `roll_tensor`") == 1
    assert "which megatron-core 0.12.1 to 0.13.0 does not take" in finding["message"]
