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


def reasons_of_neither(said: UpgradeReport) -> list[str]:
    """What fits neither release."""
    return [use.sentence for use in said.uses.already]


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
