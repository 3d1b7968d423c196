"""Who can call what is patched: whose object it is, and what is replaced beside it."""

import pytest
from checking import found_in

from mcore_unpatch.judge.callers import callers
from mcore_unpatch.megatron import known

BUILT = """\
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlock
def forward(hidden_states): return hidden_states
class Model({base}):
    def __init__(self, config, block: TransformerBlock):
        self.{part} = {value}
        self.{part}.forward = forward
"""


@pytest.mark.parametrize(
    ("base", "part", "value", "raises"),
    [
        ("MegatronModule", "vision", "TransformerBlock(config, None)", False),
        ("GPTModel", "decoder", "TransformerBlock(config, None)", True),
        ("MegatronModule", "vision", "block", True),
    ],
)
def test_only_its_own_class_calls_what_a_class_builds(base: str, part: str, value: str, raises: bool) -> None:
    [finding] = found_in(BUILT.format(base=base, part=part, value=value), target=(0, 19, 2))
    assert (": TypeError on megatron-core" in finding.message) is raises


MLA = """\
from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MultiLatentAttention
original = MultiLatentAttention.forward
def tensors(self, hidden_states, *args, **kwargs): return 1, 2, 3, 4, 5, 6
def forward(self, hidden_states, *args, **kwargs): return {}
def install():
    MLASelfAttention.get_query_key_value_tensors = tensors
    {}
"""


@pytest.mark.parametrize(
    ("body", "other", "raises"),
    [
        ("hidden_states, None", "MultiLatentAttention.forward = forward", False),
        ("original(self, hidden_states, *args, **kwargs)", "MultiLatentAttention.forward = forward", True),
        ("hidden_states, None", "if hasattr(MLASelfAttention, 'x'): MultiLatentAttention.forward = forward", True),
        ("hidden_states, None", "", True),
    ],
)
def test_a_caller_that_is_replaced_too_does_not_run(body: str, other: str, raises: bool) -> None:
    findings = found_in(MLA.format(body, other or "pass"), target=(0, 15, 3))
    assert any("`MultiLatentAttention.forward` unpacks" in finding.message for finding in findings) is raises


HELD = """\
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_block import TransformerBlock
def without_call(self, *args, **kwargs): return None
def patch({who}):
    {before}
    {block}.forward = lambda hidden_states: hidden_states
"""


@pytest.mark.parametrize(
    ("who", "before", "block", "told"),
    [
        ("model: GPTModel", "pass", "model.decoder", "`GPTModel.forward` passes: TypeError"),
        ("block: TransformerBlock", "pass", "block", "`CLIPViTModel.forward` passes 2 values by position"),
        ("model: GPTModel", "GPTModel.forward = without_call", "model.decoder", ""),
    ],
)
def test_a_part_is_called_by_what_holds_it(who: str, before: str, block: str, told: str) -> None:
    findings = found_in(HELD.format(who=who, before=before, block=block), target=(0, 19, 2))
    (message,) = (one.message for one in findings if one.target.endswith("TransformerBlock.forward"))
    assert told in message
    assert ("TypeError" in message) is bool(told)
    assert ("CLIPViTModel" in message) is (who == "block: TransformerBlock")


def test_a_subclass_of_megatron_calls_the_class_that_it_was_made_with() -> None:
    source = """
        from megatron.core.transformer.{module} import {name}
        import megatron.core.transformer.{module} as home
        class Mine:
            def __init__(self): ...
        home.{name} = Mine
        """
    [base] = found_in(source.format(module="moe.experts", name="TEGroupedMLP"), target=(0, 19, 2))
    assert "InferenceGroupedMLP" not in base.message
    [built] = found_in(source.format(module="transformer_block", name="TransformerBlock"), target=(0, 19, 2))
    assert "which `Mine` does not take: TypeError" in built.message


@pytest.mark.parametrize(("base", "told"), [("MultiLatentAttention", True), ("Own", False)])
def test_what_a_base_class_of_megatron_calls_is_called_of_its_heirs_alone(base: str, told: bool) -> None:
    source = f"""
        from megatron.core.transformer import multi_latent_attention
        from megatron.core.transformer.multi_latent_attention import MultiLatentAttention
        class Own:
            def forward(self, hidden_states, *args, **kwargs): return self.get_query_key_value_tensors(hidden_states)
        class Mine({base}):
            def get_query_key_value_tensors(self, hidden_states): ...
        multi_latent_attention.MLASelfAttention = Mine
        """
    [finding] = found_in(source, target=(0, 15))
    assert ("`Mine.get_query_key_value_tensors` does not take: TypeError" in finding.message) is told


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("megatron.core.models.gpt.gpt_layer_specs", True),  # it has it from a `try`, and calls `layer_norm`
        ("megatron.core.models.gpt.moe_module_specs", False),  # it calls others of its methods
        ("megatron.core.extensions.transformer_engine_spec_provider", True),
    ],
)
def test_a_call_told_by_the_name_of_a_method_is_one_of_the_module_with_the_class(module: str, told: bool) -> None:
    source = f"""
        import {module} as home
        class Mine:
            def layer_norm(self, rms_norm=False, for_qk=False): ...
        home.TESpecProvider = Mine
        """
    [provider] = found_in(source, target=(0, 17))
    said = "; `gpt_layer_specs` passes `has_residual`, which `Mine.layer_norm` does not take: TypeError on"
    assert (said in provider.message, "TypeError" in provider.message) == (told, told)


def test_a_name_that_nobody_reads_has_no_callers() -> None:
    """The older name of a function stays as an alias; Megatron calls the newer one."""
    module = "megatron.core.distributed.finalize_model_grads"
    older, newer = f"{module}._allreduce_layernorm_grads", f"{module}._allreduce_non_tensor_model_parallel_grads"
    called_by = {
        release: [[usage.place for usage in callers(known.model(release), name)] for name in (older, newer)]
        for release in ("0.12.3", "0.19.2")
    }
    everything = [f"{module}.finalize_model_grads"]
    assert called_by == {"0.12.3": [everything, []], "0.19.2": [[], everything]}
