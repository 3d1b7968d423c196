"""What the scanner leaves alone: everything that is no patch of Megatron Core."""

import pytest
from checking import check_noop, found_in

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


class TestOverridingInASubclass:
    def test_method(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            class Model(GPTModel):
                def forward(self, *args, **kwargs):
                    return super().forward(*args, **kwargs)
        """)

    def test_class_attribute(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def my_forward(self, *args): ...
            class Model(GPTModel):
                forward = my_forward
        """)

    def test_a_submodule_built_in_its_own_constructor(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            class Model(GPTModel):
                def __init__(self, config):
                    super().__init__(config)
                    self.output_layer = ValueHead(config)
        """)

    def test_a_method_the_subclass_itself_defines(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            class Model(GPTModel):
                def set_input_tensor(self): ...
            def other(self): ...
            Model.set_input_tensor = other
        """)


class TestModuleSpec:
    def test_a_class_in_a_spec(self) -> None:
        check_noop("""
            from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
            from megatron.core.transformer.attention import SelfAttention
            class MyAttention(SelfAttention): ...
            spec = get_gpt_layer_local_spec()
            spec.submodules.self_attention.module = MyAttention
        """)

    def test_submodules_of_a_spec(self) -> None:
        check_noop("""
            from megatron.core.transformer.spec_utils import ModuleSpec
            from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
            def build(Norm, Mlp):
                spec = ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules())
                spec.submodules.mlp = Mlp
                spec.submodules.input_layernorm = Norm
                spec.module = TransformerLayer
                return spec
        """)

    def test_specs_in_a_loop(self) -> None:
        check_noop("""
            from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
            def build(config, attention):
                block = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
                for layer_spec in block.layer_specs:
                    layer_spec.submodules.self_attention.submodules.core_attention = attention
                return block
        """)


class TestConfigFields:
    def test_of_a_model(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def set_up(model: GPTModel, fn):
                model.config.activation_func = fn
                model.config.no_sync_func = model.no_sync
        """)

    def test_of_a_config_object(self) -> None:
        check_noop("""
            from megatron.core.transformer.transformer_config import TransformerConfig
            def set_up(fn):
                config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
                config.finalize_model_grads_func = fn
                setattr(config, "grad_scale_func", fn)
                for name in ("a", "b"):
                    setattr(config, name, fn)
                return config
        """)

    def test_a_detach_field(self) -> None:
        check_noop(IMPORT + "def set_up(model: GPTModel):\n    model.config.mtp_detach_heads = True\n")


class TestOfficialHooks:
    def test_forward_hooks(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def attach(model: GPTModel, fn):
                handle = model.register_forward_pre_hook(fn, with_kwargs=True)
                model.decoder.register_forward_hook(fn)
                for layer in model.mtp.layers:
                    layer.register_forward_pre_hook(fn, with_kwargs=True)
                return handle
        """)

    def test_hooks_kept_on_the_model(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def attach(model: GPTModel, fn):
                model.my_handle = model.register_forward_hook(fn)
        """)

    def test_the_output_hook(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, ids, processor):
                return model(ids, None, None, output_processor=processor, output_processor_context={"temperature": 1.0})
        """)

    def test_the_output_hook_in_a_schedule_plan(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def plan(model: GPTModel, ids, processor):
                schedule_plan = model.build_schedule_plan(ids, None, None, output_processor=processor)
                schedule_plan.tag = "mine"
                return schedule_plan
        """)

    def test_a_forward_that_passes_the_hook_on(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            class Wrapper:
                def __init__(self, model: GPTModel):
                    self.model = model
                def forward(self, ids, output_processor=None):
                    self.output = self.model(ids, None, None, output_processor=output_processor)
                    return self.output
        """)


class TestPlainAttributes:
    @pytest.mark.parametrize(
        "statement",
        [
            "model.my_flag = True",
            "model.is_value_model = critic",
            "model.my_cache = {}",
            "model.step_count += 1",
            "model.step_count = model.step_count + 1",
            "model.share_embeddings_and_output_weights = False",
            "model.vocab_size = 128",
            "model.temperature = temperature",
            "setattr(model, 'step_count', 3)",
            "model.output_layer.weight.requires_grad = False",
            "model.output_layer.weight.data = weight",
            "model.output_layer.bias = None",
            "model.output_layer.sequence_parallel = False",
            "model.decoder.input_tensor = tensor",
            "model.embedding.word_embeddings.weight.grad = None",
            "GPTModel.my_counter = 0",
            "GPTModel._my_flag = False",
        ],
    )
    def test_on_a_model(self, statement: str) -> None:
        check_noop(IMPORT + f"def mark(model: GPTModel, critic, temperature, weight, tensor):\n    {statement}\n")

    def test_state_that_megatron_itself_rebinds(self) -> None:
        check_noop("""
            from megatron.core import parallel_state
            parallel_state._TENSOR_MODEL_PARALLEL_GROUP = None
        """)

    def test_a_flag_on_a_parameter(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            def mark(model: GPTModel):
                for param in model.parameters():
                    param.allreduce = False
                    setattr(param, "sequence_parallel", True)
        """)


class TestClassesOfTheRepositorysOwn:
    def test_called_gpt_model(self) -> None:
        check_noop("""
            class GPTModel:
                def forward(self): ...
            def fast(self): ...
            GPTModel.forward = fast
        """)

    def test_called_gpt_model_beside_megatron(self) -> None:
        check_noop("""
            import megatron.core
            from mine import GPTModel
            def fast(self): ...
            GPTModel.forward = fast
            GPTModel._postprocess = fast
        """)

    def test_called_gpt_model_in_another_file(self) -> None:
        check_noop(
            {
                "mine.py": "import megatron.core\nclass GPTModel:\n    def forward(self): ...\n",
                "patches.py": "import megatron.core\nfrom mine import GPTModel\nGPTModel.forward = lambda self: 1\n",
            }
        )

    def test_an_instance_of_it(self) -> None:
        check_noop("""
            from megatron.core import parallel_state
            class GPTModel:
                def __init__(self):
                    self.output_layer = None
            model = GPTModel()
            model.forward = lambda ids: ids
            model.output_layer = object()
        """)

    def test_another_librarys_model(self) -> None:
        check_noop("""
            from megatron.core import parallel_state
            from transformers import LlamaForCausalLM
            def fast(self): ...
            LlamaForCausalLM.forward = fast
            def patch(model: LlamaForCausalLM):
                model.forward = fast.__get__(model, LlamaForCausalLM)
        """)

    def test_torch_itself(self) -> None:
        check_noop("""
            import torch
            import megatron.core
            torch.nn.Linear.forward = lambda self, x: x
            torch.distributed.all_reduce = lambda x: x
        """)

    def test_a_wrapper_that_holds_a_model(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            class Actor:
                def __init__(self, model: GPTModel):
                    self.model = model
                    self.forward = self.run
                    self.output_layer = model.output_layer
                def run(self, ids):
                    return self.model(ids)
        """)


class TestCodeThatOnlyReads:
    def test_a_method_taken_and_called(self) -> None:
        check_noop("""
            from megatron.core.models.gpt import GPTModel
            forward = GPTModel.forward
            def run(model, ids):
                call = model.forward
                return call(ids)
        """)

    def test_source_text_that_is_only_read(self) -> None:
        check_noop("""
            import inspect
            from megatron.core.models.gpt import GPTModel
            print("padding_mask" in inspect.getsource(GPTModel._postprocess))
        """)

    def test_text_about_a_patch(self) -> None:
        check_noop('''
            """GPTModel.forward = fast is what we do not do."""
            from megatron.core.models.gpt import GPTModel
            # GPTModel.forward = fast
            ADVICE = "GPTModel.forward = fast"
        ''')

    def test_dotted_names_that_are_only_listed(self) -> None:
        check_noop("""
            MODULES = ["megatron.core.models.gpt.gpt_model", "megatron.core.transformer.mlp"]
            LOGGERS = {"megatron.core.optimizer": 10}
            import logging
            logging.getLogger("megatron.core.models").setLevel(10)
        """)

    def test_comparison_is_no_assignment(self) -> None:
        check_noop(IMPORT + "def is_plain(model: GPTModel):\n    return model.forward == GPTModel.forward\n")

    def test_modules_looked_up(self) -> None:
        check_noop("""
            import sys
            module = sys.modules.get("megatron.core.utils")
            for name, module in sys.modules.items():
                if name.startswith("megatron.core"):
                    print(module.__file__)
        """)

    def test_a_local_name_like_a_megatron_function(self) -> None:
        check_noop("""
            from megatron.core.utils import get_model_config
            get_model_config = print
            class Holder:
                pass
            holder = Holder()
            holder.get_model_config = get_model_config
        """)


def test_an_empty_repository() -> None:
    check_noop({"empty.py": ""})


def test_mocks_are_off_by_default() -> None:
    check_noop("""
        from unittest import mock
        from megatron.core.models.gpt import GPTModel
        def test_it(monkeypatch):
            monkeypatch.setattr(GPTModel, "forward", lambda self: 1)
            with mock.patch("megatron.core.utils.get_model_config"):
                pass
            with mock.patch.object(GPTModel, "forward"):
                pass
    """)


@pytest.mark.parametrize("name", ["_MARKER", '"__mine__"'])
def test_a_mark_set_on_a_class(name: str) -> None:
    check_noop(f'{IMPORT}_MARKER = "__mine_v3__"\nsetattr(GPTModel, {name}, True)\n')


@pytest.mark.parametrize("base, found", [("", False), ("(Timers)", True), ("(Unknown)", True)])
def test_an_object_of_a_class_that_derives_from_nothing(base: str, found: bool) -> None:
    source = f"""
        import types
        from megatron.core.timers import Timers
        def write(self: Timers): ...
        class Fake{base}: ...
        timers = Fake()
        timers.write = types.MethodType(write, timers)
    """
    assert bool(found_in(source)) is found
