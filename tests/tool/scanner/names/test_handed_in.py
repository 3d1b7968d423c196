"""Objects that come from somewhere else: what Megatron returns, what is handed in, what only its use tells."""

from typing import ClassVar

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in

OPTIMIZER = f"{CORE}.optimizer.optimizer.MegatronOptimizer"
DISTRIBUTED = f"{CORE}.optimizer.distrib_optimizer.DistributedOptimizer"


class TestWhatMegatronSays:
    """Annotations of Megatron's own functions and attributes."""

    def test_the_result_of_a_function(self) -> None:
        check_found(
            """
            from megatron.core.optimizer import get_megatron_optimizer
            def build(config, model):
                optimizer = get_megatron_optimizer(config, model)
                optimizer.step = lambda: None
            """,
            target=f"{OPTIMIZER}.step",
            confidence="certain",
        )

    def test_the_result_of_a_method_without_annotation(self) -> None:
        check_noop(
            """
            from megatron.core.optimizer import get_megatron_optimizer
            def build(config, model):
                norm = get_megatron_optimizer(config, model).get_grad_norm()
                norm.step = lambda: None
            """
        )

    def test_an_attribute(self) -> None:
        check_found(
            """
            from megatron.core.optimizer.optimizer import ChainedOptimizer
            def build(optimizer: ChainedOptimizer):
                for one in optimizer.chained_optimizers:
                    one.get_parameters = lambda: []
            """,
            target=f"{OPTIMIZER}.get_parameters",
        )

    def test_a_function_that_is_kept_in_an_attribute(self) -> None:
        check_found(
            """
            from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
            def merge(parts): ...
            def install(state):
                for value in state.values():
                    if isinstance(value, ShardedTensorFactory):
                        value.merge_fn = merge
            """,
            target=f"{CORE}.dist_checkpointing.mapping.ShardedTensorFactory.merge_fn",
            shape="instance-attr",
        )

    def test_data_in_such_an_attribute(self) -> None:
        check_noop(
            """
            from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
            def install(value: ShardedTensorFactory, other):
                value.merge_fn = None
                value.data = other
            """
        )

    def test_a_function_that_a_config_holds_is_what_it_is_for(self) -> None:
        check_noop(
            """
            from megatron.core.transformer.transformer_config import TransformerConfig
            def activation(x): ...
            def install(config: TransformerConfig):
                config.activation_func = activation
                config.finalize_model_grads_func = activation
            """
        )


class TestNarrowed:
    @pytest.mark.parametrize(
        "test",
        [
            'one.__class__.__name__ == "DistributedOptimizer"',
            'type(one).__name__ == "DistributedOptimizer"',
            '"DistributedOptimizer" == type(one).__name__',
            'type(one).__name__ in ("DistributedOptimizer",)',
        ],
    )
    def test_by_the_name_of_a_class(self, test: str) -> None:
        finding = check_found(
            f"""
            import megatron.core
            def nothing(*args): ...
            def install(optimizer):
                for one in optimizer:
                    if {test}:
                        one.init_state_fn = nothing
            """,
            target=f"{DISTRIBUTED}.init_state_fn",
        )
        assert "resolved from the check of its class's name on line 6" in finding.message

    def test_by_a_name_that_is_not_megatrons(self) -> None:
        check_noop(
            """
            import megatron.core
            def nothing(*args): ...
            def install(one):
                if type(one).__name__ == "Adam":
                    one.init_state_fn = nothing
            """
        )

    KINDS: ClassVar = {
        "a tuple": "KINDS = (GPTModel, MambaModel)",
        "keys": "KINDS = tuple({GPTModel: 1}.keys())",
        "a dictionary": "TABLE = {GPTModel: 'gpt'}\nKINDS = tuple(TABLE)",
        "keys of a dictionary": "TABLE = {GPTModel: 'gpt'}\nKINDS = tuple(TABLE.keys())",
    }

    @pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
    def test_by_classes_under_a_name(self, kinds: str) -> None:
        source = "from megatron.core.models.gpt import GPTModel\nfrom megatron.core.models.mamba import MambaModel\n"
        source += f"{kinds}\ndef install(model, layers):\n    assert isinstance(model, KINDS)\n"
        check_found(
            f"{source}    model.decoder.layers = build(layers)\n",
            target=f"{CORE}.transformer.transformer_block.TransformerBlock.layers",
        )

    def test_by_classes_of_another_file(self) -> None:
        files = {
            "kinds.py": "from megatron.core.models.gpt import GPTModel\nTABLE = {GPTModel: 'gpt'}\n",
            "use.py": "from kinds import TABLE\ndef install(model):\n    kinds = tuple(TABLE.keys())\n"
            "    if isinstance(model, kinds):\n        model.forward = print\n",
        }
        check_found(files, target=f"{GPT}.forward")


class TestTyped:
    def test_an_alias_of_a_type(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            Models = list[GPTModel]
            def install(models: Models):
                for model in models:
                    model.forward = print
            """,
            target=f"{GPT}.forward",
        )

    def test_what_a_base_class_of_another_file_keeps(self) -> None:
        files = {
            "base.py": "from megatron.core.models.gpt import GPTModel\n"
            "class Base:\n    def __init__(self):\n        self.model: GPTModel = build()\n",
            "worker.py": "from base import Base\nimport megatron.core\n"
            "class Worker(Base):\n    def hide(self):\n        def filtered(): ...\n"
            "        self.model.state_dict = filtered\n",
        }
        check_found(files, target=f"{GPT}.state_dict", path="worker.py")

    def test_a_field_of_what_a_function_returns(self) -> None:
        check_found(
            """
            from typing import NamedTuple
            from megatron.core.models.gpt import GPTModel
            class State(NamedTuple):
                model: GPTModel
                step: int
            def setup():
                return State(build(), 0)
            def install():
                state = setup()
                state.model.forward = print
            """,
            target=f"{GPT}.forward",
        )

    def test_a_list_that_a_method_fills(self) -> None:
        check_found(
            """
            from torch import nn
            class Strategy:
                def wrap(self, models) -> list[nn.Module]:
                    from megatron.core.distributed import DistributedDataParallel as DDP
                    wrapped = []
                    for model in models:
                        one = DDP(model)
                        wrapped.append(one)
                    return wrapped
            class Engine:
                def __init__(self, models):
                    self.strategy = Strategy()
                    self.model: list[nn.Module] = self.strategy.build()
                    self.model = self.strategy.wrap(models)
                def only(self):
                    for module in self.model:
                        module.named_parameters = lambda: []
            """,
            target=f"{CORE}.distributed.distributed_data_parallel.DistributedDataParallel.named_parameters",
        )

    def test_the_default_of_getattr(self) -> None:
        check_found(
            """
            from megatron.core.optimizer import MegatronOptimizer
            def install(optimizer: MegatronOptimizer):
                for one in getattr(optimizer, "chained_optimizers", [optimizer]):
                    one.step = lambda: None
            """,
            target=f"{OPTIMIZER}.step",
        )

    def test_a_list_that_may_be_the_object_itself(self) -> None:
        check_found(
            """
            from megatron.core.optimizer import MegatronOptimizer
            def parts(optimizer):
                return list(getattr(optimizer, "members", None) or [optimizer])
            def install(optimizer: MegatronOptimizer):
                for one in parts(optimizer):
                    one.step = lambda: None
            """,
            target=f"{OPTIMIZER}.step",
        )


class TestUsed:
    """Methods that one family of Megatron's classes has and nothing else, called on the object nearby."""

    def test_an_optimizer_that_is_handed_in(self) -> None:
        finding = check_found(
            """
            from megatron.core.optimizer import clip_grads
            def install(optimizer):
                def step():
                    if optimizer.prepare_grads():
                        return False
                    return optimizer.step_with_ready_grads()
                optimizer.step = step
            """,
            target=f"{OPTIMIZER}.step",
            confidence="likely",
        )
        assert "`prepare_grads`" in finding.message

    def test_an_attribute_of_itself(self) -> None:
        check_found(
            """
            import megatron.core
            class Model:
                def __init__(self, config):
                    self.language_model = config.provide()
                    self.language_model.rotary_pos_emb = Rotary(config)
                    self.weight = self.language_model.shared_embedding_or_output_weight
            """,
            target=f"{GPT}.rotary_pos_emb",
            shape="submodule",
        )

    def test_methods_of_megatron_alone_replaced_side_by_side(self) -> None:
        found = found_in(
            """
            from types import MethodType
            from megatron.core import parallel_state
            from own import Distillation
            def adjust(model: Distillation):
                def loss(self, labels, logits): ...
                def forward(self, *args): ...
                model.compute_language_model_loss = MethodType(loss, model)
                model.forward = MethodType(forward, model)
            """
        )
        assert [one.target.rpartition(".")[2] for one in found] == ["compute_language_model_loss", "forward"]
        assert all(one.confidence == "likely" for one in found)

    def test_a_class_of_its_own_that_says_nothing_of_the_method(self) -> None:
        files = {
            "own.py": "class Dynamic: ...\nclass Distillation(Dynamic):\n    def own(self): ...\n",
            "adjust.py": "from types import MethodType\nfrom megatron.core import parallel_state\n"
            "from own import Distillation\n"
            "def loss(self, labels, logits): ...\n"
            "def adjust(model: Distillation):\n"
            "    model.compute_language_model_loss = MethodType(loss, model)\n"
            "    model.own = MethodType(loss, model)\n",
        }
        check_found(
            files,
            line=6,
            target=f"{CORE}.models.common.language_module.language_module.LanguageModule.compute_language_model_loss",
        )

    def test_torch_s_own_optimizer(self) -> None:
        check_noop(
            """
            import torch, megatron.core
            def install(optimizer):
                optimizer.zero_grad()
                optimizer.state_dict()
                optimizer.step = lambda: None
            """
        )

    def test_a_method_that_torch_s_own_wrapper_has_too(self) -> None:
        check_noop("import megatron.core\ndef g(m):\n    m.no_sync()\n    m.train = lambda: None\n")

    def test_a_file_without_megatron(self) -> None:
        check_noop(
            """
            def install(optimizer):
                optimizer.prepare_grads()
                optimizer.step = lambda: None
            """
        )

    def test_another_object_of_the_same_name(self) -> None:
        check_noop(
            """
            import megatron.core
            def ready(optimizer):
                return optimizer.prepare_grads()
            def install(optimizer):
                optimizer.step = lambda: None
            """
        )
