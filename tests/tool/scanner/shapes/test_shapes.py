"""Every shape a patch takes is found, once."""

import pytest
from checking import BLOCK, CORE, GPT, LAYER, MTP_LAYER, check_found, found_in


class TestClassAttribute:
    def test_method(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt.gpt_model import GPTModel
            def fast(self): ...
            GPTModel.forward = fast
            """,
            target=f"{GPT}.forward",
            shape="class-attr",
            confidence="certain",
            path="patches.py",
            line=4,
            column=1,
            end_line=4,
        )

    def test_lambda_over_several_lines(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt.gpt_model import GPTModel
            if True:
                GPTModel._postprocess = lambda self, hidden: (
                    hidden
                )
            """,
            target=f"{GPT}._postprocess",
            shape="class-attr",
            line=4,
            column=5,
            end_line=6,
        )

    @pytest.mark.parametrize(
        "wrapper", ["staticmethod(fast)", "torch.compile(GPTModel.forward)", "wraps(old)(fast)", "make(old)"]
    )
    def test_made_by_a_wrapper(self, wrapper: str) -> None:
        check_found(
            f"""
            import torch
            from functools import wraps
            from megatron.core.models.gpt.gpt_model import GPTModel
            from mine import make
            def fast(self): ...
            old = GPTModel.forward
            GPTModel.forward = {wrapper}
            """,
            target=f"{GPT}.forward",
            shape="class-attr",
        )

    def test_inherited_from_torch(self) -> None:
        check_found(
            "from megatron.core.transformer.transformer_layer import TransformerLayer as T\nT.state_dict = print\n",
            target=f"{LAYER}.state_dict",
        )

    def test_a_method_that_is_added(self) -> None:
        finding = check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def log_probs(self): ...
            GPTModel.log_probs = log_probs
            """,
            target=f"{GPT}.log_probs",
            shape="class-attr",
        )
        assert "adds `GPTModel.log_probs`" in finding.message

    def test_several_targets_in_one_statement_are_several_patches(self) -> None:
        findings = found_in("""
            from megatron.core.models.gpt import GPTModel
            from megatron.core.transformer.transformer_block import TransformerBlock
            def fast(self): ...
            GPTModel.forward = TransformerBlock.forward = fast
        """)
        assert [f.target for f in findings] == [f"{GPT}.forward", f"{BLOCK}.forward"]

    def test_tuple(self) -> None:
        findings = found_in("""
            from megatron.core.models.gpt import GPTModel
            def a(self): ...
            def b(self): ...
            GPTModel.forward, GPTModel._postprocess = a, b
        """)
        assert [f.target for f in findings] == [f"{GPT}._postprocess", f"{GPT}.forward"]

    def test_annotated(self) -> None:
        check_found(
            """
            from typing import Any
            from megatron.core.models.gpt import GPTModel
            GPTModel.forward: Any = print
            """,
            target=f"{GPT}.forward",
        )

    @pytest.mark.parametrize(("made", "found"), [("ModelParallelConfig", 1), ("ModelParallelConfig()", 0)])
    def test_a_field_of_a_class_by_another_name(self, made: str, found: int) -> None:
        """In a file that is read for another patch: by its bytes alone the line may be anything."""
        said = f"""
            import torch
            from megatron.core.models.gpt import GPTModel
            GPTModel.forward = print
            from megatron.core import ModelParallelConfig
            config = {made}
            config.pipeline_dtype = torch.bfloat16
        """
        target = f"{CORE}.model_parallel_config.ModelParallelConfig.pipeline_dtype"
        assert [one.target for one in found_in(said)] == [f"{GPT}.forward"] + [target] * found


class TestModuleAttribute:
    @pytest.mark.parametrize(
        "head", ["import megatron.core\nps = 0\n", "from megatron.core import parallel_state as ps\n"]
    )
    @pytest.mark.parametrize(
        ("value", "verb"), [("mine", "adds"), ("traced({}.get_no_such_group)", "replaces"), ("group()", ""), ("[]", "")]
    )
    def test_a_name_that_no_release_has(self, head: str, value: str, verb: str) -> None:
        owner = "ps" if head.startswith("from") else "megatron.core.parallel_state"
        text = f"{head}from mine import mine, traced, group\n{owner}.get_no_such_group = {value.format(owner)}\n"
        said = [(one.target, one.message) for one in found_in({"a.py": text, "mine.py": "def mine(): ...\n"})]
        assert [one[0] for one in said] == [f"{CORE}.parallel_state.get_no_such_group"] * bool(verb)
        assert all(message.startswith(f"{verb} `parallel_state.get_no_such_group` in") for _, message in said)
        assert all(("is in no release" in message) == (verb == "replaces") for _, message in said)

    def test_function(self) -> None:
        check_found(
            "import megatron.core.utils\ndef mine(model): ...\nmegatron.core.utils.get_model_config = mine\n",
            target=f"{CORE}.utils.get_model_config",
            shape="module-attr",
            rule="MCU602",
        )

    def test_class(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import gpt_layer_specs
            class Mine: ...
            gpt_layer_specs.SelfAttention = Mine
            """,
            target=f"{CORE}.models.gpt.gpt_layer_specs.SelfAttention",
            shape="module-attr",
        )

    def test_constant(self) -> None:
        check_found(
            "from megatron.core.transformer import attention\nattention.HAVE_FA3 = False\n",
            target=f"{CORE}.transformer.attention.HAVE_FA3",
            shape="module-attr",
        )

    def test_function_of_parallel_state(self) -> None:
        check_found(
            "from megatron.core import parallel_state as mpu\nmpu.get_tensor_model_parallel_rank = lambda: 0\n",
            target=f"{CORE}.parallel_state.get_tensor_model_parallel_rank",
            shape="module-attr",
        )

    def test_name_imported_into_the_module(self) -> None:
        check_found(
            "from megatron.core.models.gpt import gpt_model\ngpt_model.tie_word_embeddings_state_dict = print\n",
            target=f"{CORE}.models.gpt.gpt_model.tie_word_embeddings_state_dict",
            shape="module-attr",
        )


class TestInstanceAttribute:
    def test_method_type(self) -> None:
        check_found(
            """
            import types
            from megatron.core.models.gpt import GPTModel
            def fast(self): ...
            def patch(model: GPTModel):
                model.forward = types.MethodType(fast, model)
            """,
            target=f"{GPT}.forward",
            shape="instance-attr",
        )

    def test_bare_method_type(self) -> None:
        check_found(
            """
            from types import MethodType
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                model.forward = MethodType(fast, model)
            """,
            target=f"{GPT}.forward",
            shape="instance-attr",
        )

    def test_get(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def fast(self): ...
            def patch(model: GPTModel):
                model.forward = fast.__get__(model, GPTModel)
            """,
            target=f"{GPT}.forward",
            shape="instance-attr",
        )

    def test_closure(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                original = model.forward
                def fast(*args, **kwargs):
                    return original(*args, **kwargs)
                model.forward = fast
            """,
            target=f"{GPT}.forward",
            shape="instance-attr",
        )

    def test_lambda(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                model.output_layer.forward = lambda hidden, *args, **kwargs: (hidden, None)
            """,
            target=f"{GPT}.output_layer.forward",
            shape="instance-attr",
        )

    def test_partial(self) -> None:
        check_found(
            """
            import functools
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                model.forward = functools.partial(fast, model)
            """,
            target=f"{GPT}.forward",
            shape="instance-attr",
        )


class TestClassOfInstance:
    @pytest.mark.parametrize("owner", ["model.__class__", "type(model)"])
    def test_method(self, owner: str) -> None:
        check_found(
            f"""
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                {owner}.forward = fast
            """,
            target=f"{GPT}.forward",
            shape="class-of-instance",
        )

    def test_class_swapped(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            class Mine(GPTModel): ...
            def patch(model: GPTModel):
                model.__class__ = Mine
            """,
            target=f"{GPT}.__class__",
        )


class TestSubmodule:
    def test_output_layer(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                model.output_layer = ValueHead(8)
            """,
            target=f"{GPT}.output_layer",
            shape="submodule",
        )

    def test_embedding(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                model.embedding = Mine(model.config)
            """,
            target=f"{GPT}.embedding",
            shape="submodule",
            rule="MCU604",
        )

    def test_one_of_the_layers(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                model.decoder.layers[0] = Mine(model.config)
            """,
            target=f"{BLOCK}.layers",
            shape="submodule",
        )

    def test_with_setattr(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel):
                setattr(model, "output_layer", ValueHead(8))
            """,
            target=f"{GPT}.output_layer",
        )


class TestThroughACallExpression:
    def test_schedule_plan(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                schedule_plan = model.build_schedule_plan(None, None, None)
                schedule_plan.post_process.forward_impl = fast
            """,
            target=f"{CORE}.models.common.utils.PostProcessNode.forward_impl",
            shape="instance-attr",
            seam="schedule",
        )

    def test_what_a_wrapped_model_has(self) -> None:
        source = "from megatron.core.utils import get_attr_wrapped_model\ndef patch(model, f):\n    {}.forward = f\n"
        [finding] = found_in(source.format('get_attr_wrapped_model(model, "decoder")'))
        assert finding.target == f"{CORE}.transformer.transformer_block.TransformerBlock.forward"
        assert finding.message.endswith("likely, judging by the result of `get_attr_wrapped_model`")
        assert found_in(source.format('get_attr_wrapped_model(model, "nothing")')) == []

    def test_unwrapped(self) -> None:
        check_found(
            """
            from megatron.core.utils import unwrap_model
            def patch(model, fast):
                unwrap_model(model)._postprocess = fast.__get__(unwrap_model(model))
            """,
            target=f"{GPT}._postprocess",
            shape="instance-attr",
        )

    def test_getattr(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                getattr(model, "output_layer").forward = fast
            """,
            target=f"{GPT}.output_layer.forward",
            shape="instance-attr",
        )

    def test_import_module(self) -> None:
        check_found(
            "import importlib\nimportlib.import_module('megatron.core.utils').get_model_config = print\n",
            target=f"{CORE}.utils.get_model_config",
            shape="module-attr",
        )

    def test_layers_of_a_call(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(get_model, fast):
                model: GPTModel = get_model()
                list(model.mtp.layers)[0]._get_embeddings = fast
            """,
            target=f"{MTP_LAYER}._get_embeddings",
            shape="instance-attr",
        )


def test_what_a_subclass_does_to_itself_beside_a_patch() -> None:
    check_found(
        """
        from megatron.core.models.gpt import GPTModel
        class Mine(GPTModel):
            def __init__(self, config):
                super().__init__(config)
                self.output_layer = ValueHead(config)
                self.forward = self.fast
                setattr(self, "_postprocess", self.fast)
                self.__dict__["state_dict"] = self.fast
        GPTModel.forward = print
        """,
        line=10,
    )
