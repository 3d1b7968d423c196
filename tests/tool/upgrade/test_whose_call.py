"""Whose call reaches a replacement or a subclass: others' calls, and calls of what is ours, raise nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from checking import Source, found_in, releases, write_files

from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.run import UpgradeReport, upgrade

EMBEDDING = """
    from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
    from megatron.core.models.gpt.gpt_model import GPTModel

    def embedding_init(self, config, vocab_size, max_sequence_length, split=False, **kwargs):
        ...

    def gpt_init(self, config, *args, **kwargs):
        self.embedding = LanguageModelEmbedding(config, 8, 8, split=True)

    LanguageModelEmbedding.__init__ = embedding_init
    GPTModel.__init__ = gpt_init
"""
STATIC = """
    from megatron.core.tensor_parallel.cross_entropy import VocabParallelCrossEntropy

    def calculate_logits_max(vocab_parallel_logits):
        return vocab_parallel_logits, vocab_parallel_logits.max(-1)[0]

    VocabParallelCrossEntropy.calculate_logits_max = calculate_logits_max
"""


def report(folder: Path, source: Source, old: str = "0.15.0", new: str = "0.19.2") -> UpgradeReport:
    write_files(folder, source)
    return upgrade([folder], ScanOptions(jobs=1), *releases(old, new))


def reasons(said: UpgradeReport) -> str:
    """Every sentence of a report."""
    texts = [reason for fate in said.fates for reason in fate.reasons]
    return " | ".join([*texts, *(use.sentence for use in said.uses.affected)])


def test_a_call_of_what_the_repository_replaces_is_held_to_its_own_function(tmp_path: Path) -> None:
    assert "TypeError" not in reasons(report(tmp_path, EMBEDDING, "0.18.2"))
    assert "breaks" not in [finding.effect for finding in found_in(EMBEDDING)]


def test_a_call_of_the_original_is_held_to_megatron(tmp_path: Path) -> None:
    kept = EMBEDDING.replace("LanguageModelEmbedding(config", "original(self, config").replace(
        "    def gpt_init", "    original = LanguageModelEmbedding.__init__\n\n    def gpt_init"
    )
    assert "passes `split`" in reasons(report(tmp_path, kept, "0.18.2"))
    alone = EMBEDDING.replace("LanguageModelEmbedding.__init__ = embedding_init", "")
    assert "passes `split`" in reasons(report(tmp_path, alone, "0.18.2"))


def test_a_name_taken_before_it_is_replaced_is_megatrons(tmp_path: Path) -> None:
    source = """
        from megatron.core import utils
        from megatron.core.utils import divide
        from megatron.core.transformer.mlp import MLP

        def ours(numerator, denominator, floor=True):
            return numerator // denominator

        def forward(self, hidden_states, **kwargs):
            return {}(4, 2, floor=True)

        utils.divide = ours
        MLP.forward = forward
    """
    assert "passes `floor`" in reasons(report(tmp_path, source.format("divide"), "0.18.2"))
    assert "passes `floor`" not in reasons(report(tmp_path, source.format("utils.divide"), "0.18.2"))


def test_a_plain_function_in_place_of_a_static_method_gets_no_object_through_the_class(tmp_path: Path) -> None:
    said = report(tmp_path, STATIC, "0.16.1")
    assert [fate.urgency for fate in said.fates] == ["harmless"]
    more = STATIC.replace("(vocab_parallel_logits):", "(vocab_parallel_logits, scale):")
    assert "does not pass" in reasons(report(tmp_path, more, "0.16.1"))


def test_a_method_that_the_repository_replaces_on_the_subclass_takes_what_it_takes(tmp_path: Path) -> None:
    source = """
        from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MultiLatentAttention

        def values(self, hidden_states, rotary_pos_emb=None, **kwargs):
            return hidden_states, hidden_states, hidden_states

        def forward(self, hidden_states, *args, **kwargs):
            query, key, value = self.get_query_key_value_tensors(hidden_states, none_such=None)
            return query, None

        MultiLatentAttention.forward = forward
    """
    ours = "    MLASelfAttention.get_query_key_value_tensors = values\n"
    assert "passes `none_such`" in reasons(report(tmp_path, source))
    assert "passes `none_such`" not in reasons(report(tmp_path, source + ours))


def test_a_sibling_that_hands_on_does_not_call_the_subclass(tmp_path: Path) -> None:
    said = report(
        tmp_path,
        """
        from megatron.core.transformer.transformer_layer import TransformerLayer

        class Layer(TransformerLayer):
            def __init__(self, config, submodules, layer_number=1, pg_collection=None, vp_stage=None):
                super().__init__(config=config, submodules=submodules, layer_number=layer_number)
    """,
    )
    assert "MLPLayer" not in reasons(said)


def test_the_caller_that_is_named_is_the_one_that_calls(tmp_path: Path) -> None:
    said = reasons(
        report(
            tmp_path,
            """
        from megatron.core.transformer.mlp import MLP
        from megatron.core.transformer.moe.shared_experts import SharedExpertMLP

        class Own(MLP):
            def forward(self, hidden_states, per_token_scale=None):
                return super().forward(hidden_states, per_token_scale)

        class Shared(SharedExpertMLP):
            def forward(self, hidden_states):
                return super().forward(hidden_states)
    """,
        )
    )
    assert "`TransformerLayer._forward_mlp` of megatron-core 0.19.2 passes `padding_mask`, which `Own.forward`" in said
    assert "Shared" not in said


def test_a_patch_breaks_since_the_first_release_that_passes_one_of_the_names(tmp_path: Path) -> None:
    said = reasons(
        report(
            tmp_path,
            """
        from megatron.core.transformer.transformer_layer import TransformerLayer

        def _forward_mlp(self, hidden_states, inference_context=None):
            return hidden_states

        TransformerLayer._forward_mlp = _forward_mlp
    """,
        )
    )
    assert "`packed_seq_params`, which `TransformerLayer.forward` passes: TypeError on megatron-core 0.16+" in said


def test_the_method_of_a_base_class_is_not_the_original(tmp_path: Path) -> None:
    said = reasons(
        report(
            tmp_path,
            """
        from megatron.core.models.common.language_module.language_module import LanguageModule
        from megatron.core.transformer.module import MegatronModule

        def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
            state = MegatronModule.sharded_state_dict(self, prefix, sharded_offsets, metadata)
            state[f"{prefix}output_layer.bias"].allow_shape_mismatch = True
            return state

        LanguageModule.sharded_state_dict = sharded_state_dict
    """,
            "0.16.1",
        )
    )
    assert "body changed" in said
    assert "takes the result of the original apart" not in said


def test_what_a_function_that_is_given_returns_is_unpacked_as_before(tmp_path: Path) -> None:
    said = report(
        tmp_path,
        """
        from megatron.core import tensor_parallel
        from megatron.core.transformer.mlp import MLP

        def forward(self, hidden_states, per_token_scale=None, **kwargs):
            a, b, c = tensor_parallel.checkpoint(lambda x: (x, x, x), False, hidden_states)
            return a, b  # as many as Megatron's own: who unpacks three calls something else

        MLP.forward = forward
    """,
        "0.16.1",
    )
    assert "unpacks" not in reasons(said)


def test_what_a_method_makes_while_it_works_is_state() -> None:
    source = """
        from megatron.core import tensor_parallel
        from megatron.core.transformer.transformer_layer import TransformerLayer

        def run(layer: TransformerLayer):
            layer.{} = {}()
    """
    assert not found_in(source.format("pre_mlp_norm_checkpoint", "tensor_parallel.CheckpointWithoutOutput"))
    assert found_in(source.format("pre_mlp_layernorm", "torch.nn.Identity"))


def test_a_sweep_replaces_the_name_where_the_newest_release_has_it() -> None:
    (finding,) = found_in("""
        import sys

        def get_batch_on_this_tp_rank(data_iterator):
            return {}

        for name in sys.modules:
            if name.startswith("megatron"):
                for target in ["get_batch_on_this_tp_rank"]:
                    if getattr(sys.modules[name], target, None):
                        setattr(sys.modules[name], target, get_batch_on_this_tp_rank)
    """)
    assert finding.target == "megatron.core.utils.get_batch_on_this_tp_rank"
    assert "lacks" in finding.message


def test_a_subclass_replaces_nothing(tmp_path: Path) -> None:
    said = report(
        tmp_path,
        """
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.core.transformer.mlp import MLP

        class Own(GPTModel):
            def forward(self, input_ids):
                return super().forward(input_ids, None, None)

        def forward(self, hidden_states, **kwargs):
            return GPTModel.forward(self, hidden_states, None, None, floor=True)

        MLP.forward = forward
    """,
        "0.18.2",
    )
    assert "passes `floor`" in " ".join(reason for fate in said.fates for reason in fate.reasons)


def test_super_of_another_class_is_that_of_its_bases(tmp_path: Path) -> None:
    source = """
        from megatron.core.transformer.attention import SelfAttention

        class Mine(SelfAttention):
            def __init__(self, config, submodules, **kwargs):
                super({}, self).__init__(config, submodules, {}=None, **kwargs)
    """
    of_attention = reasons_of_neither(report(tmp_path, source.format("SelfAttention", "attention_type"), "0.16.1"))
    assert of_attention == []
    for cls, name in (("SelfAttention", "none_such"), ("Mine", "attention_type")):
        (said,) = reasons_of_neither(report(tmp_path, source.format(cls, name), "0.16.1"))
        assert f"passes `{name}`" in said


def test_an_object_that_is_replaced_may_be_of_a_subclass(tmp_path: Path) -> None:
    source = """
        from dataclasses import replace
        from megatron.core.dist_checkpointing.mapping import ShardedBase

        def change(tensor: ShardedBase):
            return replace(tensor, {}=None)
    """
    assert reasons_of_neither(report(tmp_path, source.format("local_shape"), "0.16.1")) == []
    (said,) = reasons_of_neither(report(tmp_path, source.format("none_such"), "0.16.1"))
    assert "passes `none_such`" in said


def reasons_of_neither(said: UpgradeReport) -> list[str]:
    """What fits neither release."""
    return [use.sentence for use in said.uses.already]


_HANDS_ON = "class Mine(Base):\n    def _preprocess(self): return Base._preprocess(self)\n"


@pytest.mark.parametrize(
    ("mine", "effect"),
    [
        ("class GPTModel(Base):\n    def _preprocess(self): ...\n", "may_break"),  # of the same name
        ("class Mine(Base):\n    def _preprocess(self): ...\n", "may_break"),
        ("class Mine(Base):\n    def _preprocess(self): return self._preprocess\n", "may_break"),
        ("class Mine(Base):\n    def _preprocess(self): return super()._preprocess()\n", "breaks"),
        (_HANDS_ON, "breaks"),
        (
            f"class A(Base):\n    def _preprocess(self): ...\n{_HANDS_ON}",
            "breaks",
        ),
        ("class Mine(Base):\n    def forward(self): ...\n", "breaks"),
        ("class Mine:\n    def _preprocess(self): ...\n", "breaks"),
    ],
)
def test_a_call_that_a_class_of_the_repository_overrides_may_never_be_made(
    tmp_path: Path, mine: str, effect: str
) -> None:
    patch = """
        from megatron.core.models.common.embeddings.rotary_pos_embedding import MultimodalRotaryEmbedding
        def forward(self, position_ids, mrope_section):  # without `cp_group`
            return position_ids
        MultimodalRotaryEmbedding.forward = forward
    """
    model = f"from megatron.core.models.gpt import GPTModel as Base\n{mine}"
    (fate,) = report(tmp_path, {"a.py": patch, "model.py": model}, "0.16.1").fates
    assert (fate.finding.effect, fate.urgency) == (effect, "breaks")
    assert ("has its own `_preprocess`" in fate.finding.message) is ("has its own" in fate.reasons[0])
    assert ("has its own" in fate.finding.message) is (effect == "may_break")


def test_where_only_one_of_several_callers_is_overridden_it_breaks(tmp_path: Path) -> None:
    patch = "from megatron.core.transformer.mlp import MLP\nMLP.forward = lambda self, hidden_states: hidden_states\n"
    layer = "from megatron.core.transformer.transformer_layer import TransformerLayer\nclass Mine(TransformerLayer):\n"
    (fate,) = report(tmp_path, {"a.py": patch, "b.py": f"{layer}    def _forward_mlp(self): ...\n"}, "0.16.1").fates
    assert (fate.finding.effect, fate.urgency) == ("breaks", "breaks")
    assert "and others pass" in fate.reasons[0]


def test_what_may_break_is_told_with_what_else_changed(tmp_path: Path) -> None:
    patch = """
        from megatron.core.models.gpt.gpt_model import GPTModel
        def _postprocess(self, hidden_states):
            return hidden_states
        GPTModel._postprocess = _postprocess
    """
    mine = "from megatron.core.models.gpt import GPTModel\nclass Mine(GPTModel):\n    def forward(self): ...\n"
    (fate,) = report(tmp_path, {"a.py": patch, "b.py": mine}, "0.16.1").fates
    assert (fate.finding.effect, fate.urgency) == ("may_break", "breaks")
    assert "body changed; the replacement does not call the original" in " ".join(fate.reasons)


@pytest.mark.parametrize(("beside", "effect"), [("moe_layer.MoELayer = Own", "may_break"), ("", "breaks")])
def test_a_caller_whose_class_the_same_code_replaces_may_never_run(tmp_path: Path, beside: str, effect: str) -> None:
    patch = f"""
        from megatron.core.transformer.moe import experts, moe_layer
        class Own: ...
        class Mine:
            def __init__(self, num_local_experts, config, submodules): ...
        {beside}
        experts.TEGroupedMLP = Mine
    """
    fates = report(tmp_path, {"a.py": patch}, "0.16.1").fates
    [fate] = [one for one in fates if one.finding.target.endswith("TEGroupedMLP")]
    said = "line 6 puts another class in place of `MoELayer`, which may be all that runs"
    assert (fate.finding.effect, said in fate.finding.message) == (effect, bool(beside))
    assert (said in fate.reasons[0]) is bool(beside)


@pytest.mark.parametrize(
    ("new", "effect"), [("return hidden", "may_break"), ("return old(self, hidden)", "breaks"), ("", "breaks")]
)
def test_a_caller_that_another_file_replaces_may_never_run(tmp_path: Path, new: str, effect: str) -> None:
    """Unless what is in its place calls it."""
    router = """
        from megatron.core.transformer.moe.router import TopKRouter
        def forward(self, input):
            return 1, 2, 3
        TopKRouter.forward = forward
    """
    layer = f"""
        from megatron.core.transformer.moe.moe_layer import MoELayer
        old = MoELayer.forward
        def forward(self, hidden):
            {new}
        MoELayer.forward = forward
    """
    fates = report(tmp_path, {"a.py": router, **({"b.py": layer} if new else {})}, "0.12.0", "0.12.1").fates
    [fate] = [one for one in fates if one.finding.path == "a.py"]
    said = "b.py:6 replaces `MoELayer.forward`, which may be all that runs"
    assert (fate.finding.effect, said in fate.finding.message) == (effect, effect == "may_break")


def test_that_a_caller_may_never_run_is_said_where_something_else_raises_too(tmp_path: Path) -> None:
    patch = """
        from megatron.core import utils
        from megatron.core.transformer.moe import experts, moe_layer
        class Own: ...
        class Mine:
            def __init__(self, num_local_experts, config, submodules):
                utils.divide(1, 2, 3)
        moe_layer.MoELayer = Own
        experts.TEGroupedMLP = Mine
    """
    fates = report(tmp_path, {"a.py": patch}, "0.16.1").fates
    [fate] = [one for one in fates if one.finding.target.endswith("TEGroupedMLP")]
    assert fate.finding.effect == "breaks"
    assert "in place of `MoELayer`, which may be all that runs" in fate.finding.message


REGISTRY = """
    from megatron.core import mpu, tensor_parallel
    from megatron.core.parallel_state import get_own_rank

    def column_init(self, input_size, output_size, *, config, init_method, moe=False, **kwargs):
        ...

    def use(config):
        mpu.get_own_rank()
        return tensor_parallel.ColumnParallelLinear(1, 2, config=config, init_method=None, moe=True)

    def install(manager):
        manager.register_patch("megatron.core.{}", lambda: 0)
        manager.register_patch("megatron.core.tensor_parallel.layers.{}", column_init)
"""


@pytest.mark.parametrize(
    ("added", "replaced", "lines"),
    [
        ("parallel_state.get_own_rank", "ColumnParallelLinear.__init__", []),
        ("parallel_state.get_own_rank", "RowParallelLinear.__init__", [10]),
        ("utils.get_own_rank", "ColumnParallelLinear.__init__", [3, 9]),
    ],
)
def test_what_the_repository_puts_there_itself_is_not_missing(
    added: str, replaced: str, lines: list[int], tmp_path: Path
) -> None:
    uses = report(tmp_path, REGISTRY.format(added, replaced), "0.16.1").uses
    assert sorted(use.line for use in (*uses.affected, *uses.already)) == lines
