"""A finding says what breaks on the release it is judged for: the one asked for, or the one the repository pins."""

import pytest
from checking import Source, check_found

from mcore_unpatch.megatron.versions import parse_version

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
# The 17 parameters of GPTModel._postprocess in megatron-core 0.16.
POSTPROCESS_016 = """
def new(self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
        mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None, inference_params=None,
        packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None, extra_block_kwargs=None,
        inference_context=None):
    return log_probs(hidden_states)
"""
OLD_POSTPROCESS = f"{IMPORT}{POSTPROCESS_016}GPTModel._postprocess = new\n"


def message(source: Source, release: str | None = None) -> str:
    """What is said of the one patch of a repository."""
    options = {"target": parse_version(release)} if release else {}
    return check_found(source, options=options).message


class TestParameters:
    @pytest.mark.parametrize("release", ["0.18", "0.18.2", "0.19"])
    def test_padding_mask(self, release: str) -> None:
        said = message(OLD_POSTPROCESS, release)
        assert "lacks `padding_mask`" in said
        assert "TypeError on megatron-core 0.18+" in said

    def test_spec_decode(self) -> None:
        said = message(OLD_POSTPROCESS, "0.17")
        assert "`is_spec_decode`" in said
        assert "padding_mask" not in said
        assert said.endswith("TypeError on megatron-core 0.17")  # 0.18 does not pass it

    @pytest.mark.parametrize(("name", "where"), [
        ("save_checkpoint_and_time", "0.17+, maybe before"),  # whose callers no older wheel holds
        ("num_floating_point_operations", "0.18+"),
    ])  # fmt: skip
    def test_what_a_package_did_before_it_was_in_the_wheel(self, name: str, where: str) -> None:
        said = message(f"from megatron.training import training\ntraining.{name} = lambda: 1\n", "0.19.2")
        assert said.endswith(f"TypeError on megatron-core {where}")

    def test_fits_its_own_release(self) -> None:
        assert "TypeError" not in message(OLD_POSTPROCESS, "0.16")

    def test_any_keyword_fits_every_release(self) -> None:
        source = (
            f"{IMPORT}def new(self, hidden_states, **kwargs):\n"
            "    return log_probs(kwargs)\n"
            "GPTModel._postprocess = new\n"
        )
        assert "TypeError" not in message(source, "0.19")

    def test_a_required_parameter_that_is_no_longer_passed(self) -> None:
        source = f"""{IMPORT}
def new(self, forward_func, *args, **kwargs):
    return forward_func(*args, **kwargs)
def patch(model: GPTModel):
    for layer in model.mtp.layers:
        layer._checkpointed_forward = new.__get__(layer, type(layer))
"""
        assert "does not pass `forward_func`, which `new` requires: TypeError" in message(source, "0.18")
        assert "TypeError" not in message(source, "0.17")

    def test_bound_to_an_instance(self) -> None:
        source = (
            f"{IMPORT}{POSTPROCESS_016}def patch(model: GPTModel):\n"
            "    model._postprocess = new.__get__(model, GPTModel)\n"
        )
        assert "lacks `padding_mask`" in message(source, "0.19")

    def test_defined_in_another_file(self) -> None:
        files = {"new.py": POSTPROCESS_016, "patches.py": f"{IMPORT}from new import new\nGPTModel._postprocess = new\n"}
        assert "lacks `padding_mask`" in message(files, "0.19")


class TestTheHook:
    def test_accepted_and_never_called(self) -> None:
        source = f"""{IMPORT}
def new(self, hidden_states, output_processor=None, output_processor_context=None, **kwargs):
    return log_probs(hidden_states)
GPTModel._postprocess = new
"""
        said = message(source, "0.19")
        assert "accepts `output_processor` but never calls it, so hooks are silently dropped" in said

    def test_swallowed_by_keywords(self) -> None:
        source = (
            f"{IMPORT}def new(self, input_ids, **kwargs):\n    return log_probs(input_ids)\nGPTModel.forward = new\n"
        )
        assert "hooks are silently dropped" in message(source, "0.19")

    def test_called(self) -> None:
        source = f"""{IMPORT}
def new(self, hidden_states, output_processor=None, **kwargs):
    if output_processor is not None:
        return output_processor(hidden_states=hidden_states, **kwargs)
    return log_probs(hidden_states)
GPTModel._postprocess = new
"""
        assert "dropped" not in message(source, "0.19")

    def test_passed_on(self) -> None:
        source = f"""{IMPORT}
original = GPTModel.forward
def new(self, input_ids, temperature=1.0, **kwargs):
    return original(self, input_ids, **kwargs)
GPTModel.forward = new
"""
        assert "dropped" not in message(source, "0.19")

    def test_before_there_was_one(self) -> None:
        source = (
            f"{IMPORT}def new(self, input_ids, **kwargs):\n    return log_probs(input_ids)\nGPTModel.forward = new\n"
        )
        assert "dropped" not in message(source, "0.17")


class TestOtherFacts:
    def test_values_of_the_mtp_embeddings(self) -> None:
        source = f"""{IMPORT}
def new(self, *args, **kwargs):
    return 1, 2, 3, 4
def patch(model: GPTModel):
    for layer in model.mtp.layers:
        layer._get_embeddings = new.__get__(layer)
"""
        assert (
            "returns 4 values where `MultiTokenPredictionLayer.forward` unpacks 5: ValueError on megatron-core 0.18+"
            in message(source, "0.18")
        )
        assert "unpacks" not in message(source, "0.17")

    def test_inert_assignment(self) -> None:
        source = (
            f"{IMPORT}def patch(model: GPTModel, new):\n"
            "    model.build_schedule_plan().post_process.forward_impl = new\n"
        )
        assert "has no effect on megatron-core 0.14+" in message(source, "0.19")
        assert "has no effect" not in message(source, "0.13")

    def test_a_name_that_is_gone(self) -> None:
        source = """
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
MTPLossLoggingHelper.save_loss_to_tracker = print
"""
        assert "does not exist" not in message(source, "0.18")
        said = message(source, "0.19")
        assert "does not exist after megatron-core 0.18" in said
        assert "save_metrics_to_tracker" in said


@pytest.mark.parametrize("first", ["self", "model", "hidden"])
def test_what_is_passed_by_name_needs_a_name(first: str) -> None:
    source = f"{IMPORT}def new({first}, *args):\n    return log_probs(args)\nGPTModel._postprocess = new\n"
    assert "TypeError" in message(source, "0.19")


def test_the_original_by_the_class_of_an_object_takes_the_object_first() -> None:
    source = """
        from types import MethodType
        from megatron.core.models.gpt import GPTModel
        def install(model: GPTModel, other):
            def both(self, tensor):
                type(self).set_input_tensor(other.model, tensor)
                type(self).set_input_tensor(self, tensor{})
            model.set_input_tensor = MethodType(both, model)
        """
    assert "TypeError" not in check_found(source.format("")).message
    assert "TypeError" in check_found(source.format(", tensor")).message


PROVIDER = """
from megatron.core.models.gpt import gpt_layer_specs
class Mine:
    def layer_norm(self, rms_norm=False, for_qk=False{}): ...
gpt_layer_specs.TESpecProvider = Mine
"""


def test_a_call_told_by_its_name_alone_raises_where_it_is_made() -> None:
    said = message(PROVIDER.format(""), "0.19.2")
    assert said.endswith(
        "`gpt_layer_specs` passes `has_residual`, which `Mine.layer_norm` does not take: "
        "TypeError on megatron-core 0.19.2 where it does"
    )
    assert "TypeError" not in message(PROVIDER.format(", has_residual=False"), "0.19.2")


def test_the_condition_of_the_calls_that_do_not_fit_counts() -> None:
    """Another call, that fits, is made on no condition."""
    source = "from megatron.core.dist_checkpointing import validation\nvalidation.validate_sharding_integrity = {}\n"
    assert message(source.format("lambda data: 1"), "0.19.2").endswith(", only if `validate_access_integrity`")
    assert "TypeError" not in message(source.format("lambda data, common_state_dict=None: 1"), "0.19.2")


@pytest.mark.parametrize(
    ("target", "verb"),
    [
        ("parallel_state.mine", "adds"),
        ("parallel_state.get_context_parallel_rank", "replaces"),
        ("transformer.transformer_block.TransformerBlock.mine", "adds"),
        ("transformer.transformer_block.TransformerBlock.forward", "replaces"),
        ("transformer.transformer_block.TransformerBlock.state_dict", "replaces"),  # of torch
        ("transformer.transformer_config.TransformerConfig.__init__", "replaces"),  # made by Python
        ("nowhere.mine", "replaces"),
    ],
)
def test_what_the_release_does_not_have_is_added(target: str, verb: str) -> None:
    source = f"def new(*args): ...\nmanager.register_patch('megatron.core.{target}', new)\n"
    assert message(source, "0.19").startswith(f"{verb} `")


def test_two_calls_of_one_line_that_raise_are_both_told() -> None:
    calls = "state.get_context_parallel_rank(1), state.get_context_parallel_world_size(2)"
    head = f"{IMPORT}from megatron.core import parallel_state as state\n"
    said = message(f"{head}def new(*a, **k):\n    return {calls}\nGPTModel.forward = new\n")
    assert said.count("TypeError") == 2
    assert "get_context_parallel_rank" in said and "get_context_parallel_world_size" in said


def test_imports_of_what_no_release_has_are_told() -> None:
    """What is compiled no wheel has as a source."""
    source = f"{IMPORT}def install():\n    {{}}\n    GPTModel.forward = print\n"
    said = "line 3: `nowhere.x` is in no release of megatron-core since 0.12: ModuleNotFoundError when the patch"
    assert said in message(source.format("from megatron.core.nowhere import x"))
    assert "in no release" not in message(source.format("from megatron.core.datasets.helpers_cpp import x"))
    tried = "try: from megatron.core.nowhere import x\n    except ImportError: x = None"
    assert "in no release" not in message(source.format(tried))


@pytest.mark.parametrize(("before", "after", "raises"), [
    ("from megatron.core.nowhere import x", "", True),
    ("if flag:\n        from megatron.core.nowhere import x", "", False),  # on another way
    ("", "from megatron.core.nowhere import x", False),  # when the inner function is there
])  # fmt: skip
def test_what_the_function_around_the_installer_does_first_counts(before: str, after: str, raises: bool) -> None:
    inner = "def inner(model):\n        GPTModel.forward = print"
    said = message(
        f"{IMPORT}def install(flag):\n    {before or 'pass'}\n    {inner}\n    {after or 'pass'}\n    return inner\n"
    )
    assert ("in no release" in said) is raises


def test_releases_that_call_on_another_condition_are_not_named() -> None:
    """0.17 and 0.18 have no flag to leave the call out."""
    source = "from megatron.core import parallel_state\nparallel_state.initialize_model_parallel = lambda: 1\n"
    assert message(source, "0.19.2").endswith(
        "TypeError on megatron-core 0.19+, only if `not skip_model_parallel_init`"
    )
    assert message(source, "0.18").endswith("TypeError on megatron-core 0.17 to 0.18")
