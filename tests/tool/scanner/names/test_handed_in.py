"""Objects that come from somewhere else: what Megatron returns, what is handed in, what only its use tells."""

from checking import CORE, check_found, check_noop, found_in

OPTIMIZER = f"{CORE}.optimizer.optimizer.MegatronOptimizer"


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


class TestUsed:
    """Methods that one family of Megatron's classes has and nothing else, called on the object nearby."""

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

    def test_a_method_that_torch_s_own_wrapper_has_too(self) -> None:
        check_noop("import megatron.core\ndef g(m):\n    m.no_sync()\n    m.train = lambda: None\n")
