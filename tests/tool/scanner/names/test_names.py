"""What is patched is resolved, not guessed from spelling: imports, re-exports, aliases, subclasses."""

import pytest
from checking import BLOCK, CORE, GPT, ROUTER, check_found, check_noop, found_in

FAST = "def fast(self, *args): ...\n"


@pytest.mark.parametrize(
    ("imported", "written"),
    [
        ("from megatron.core.models.gpt.gpt_model import GPTModel", "GPTModel"),
        ("from megatron.core.models.gpt.gpt_model import GPTModel as Model", "Model"),
        ("from megatron.core.models.gpt import GPTModel", "GPTModel"),
        ("from megatron.core.models.gpt import gpt_model", "gpt_model.GPTModel"),
        ("from megatron.core.models import gpt", "gpt.GPTModel"),
        ("from megatron.core import models", "models.gpt.gpt_model.GPTModel"),
        ("from megatron import core", "core.models.gpt.gpt_model.GPTModel"),
        ("import megatron.core as mc", "mc.models.gpt.gpt_model.GPTModel"),
        ("import megatron.core.models.gpt.gpt_model", "megatron.core.models.gpt.gpt_model.GPTModel"),
        ("import megatron.core.models.gpt.gpt_model as m", "m.GPTModel"),
        ("import megatron", "megatron.core.models.gpt.GPTModel"),
        ("import megatron.core", "megatron.core.models.gpt.GPTModel"),
        ("from megatron.core.models.gpt.gpt_model import *", "GPTModel"),
        ("from importlib import import_module\nm = import_module('megatron.core.models.gpt.gpt_model')", "m.GPTModel"),
    ],
)
def test_ways_to_import_a_class(imported: str, written: str) -> None:
    check_found(
        f"{imported}\n{FAST}{written}.forward = fast\n",
        target=f"{GPT}.forward",
        shape="class-attr",
        confidence="certain",
    )


def test_import_inside_a_function() -> None:
    check_found(
        """
        def patch(fast):
            from megatron.core.models.gpt import GPTModel as Model
            Model.forward = fast
        """,
        target=f"{GPT}.forward",
    )


def test_import_inside_a_function_is_not_seen_outside() -> None:
    check_noop("""
        def unrelated():
            from megatron.core.models.gpt import GPTModel
        from mine import GPTModel
        GPTModel.forward = print
    """)


def test_the_nearer_name_counts() -> None:
    check_noop("""
        from megatron.core.models.gpt import GPTModel
        def patch(GPTModel):
            GPTModel.forward = print
        patch(object())
    """)


@pytest.mark.parametrize("nearer", ["from mine import GPTModel\n", "GPTModel = mine()\n", "def patch(GPTModel):\n    "])
def test_a_name_that_the_file_binds_is_not_that_of_a_star(nearer: str) -> None:
    check_noop(f"from megatron.core.models.gpt.gpt_model import *\n{nearer}GPTModel.forward = print\n")


def test_import_in_try_with_a_fallback() -> None:
    check_found(
        """
        try:
            from megatron.core.models.gpt import GPTModel
        except ImportError:
            GPTModel = None
        if GPTModel is not None:
            GPTModel.forward = print
        """,
        target=f"{GPT}.forward",
    )


def test_import_only_for_type_checking() -> None:
    check_found(
        """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from megatron.core.models.gpt import GPTModel
        def patch(model: GPTModel):
            model.forward = print
        """,
        target=f"{GPT}.forward",
    )


class TestReExportsByMegatron:
    @pytest.mark.parametrize(
        ("line", "target"),
        [
            ("from megatron.core.models.gpt import GPTModel as X", GPT),
            (
                "from megatron.core.tensor_parallel import ColumnParallelLinear as X",
                f"{CORE}.tensor_parallel.layers.ColumnParallelLinear",
            ),
            (
                "from megatron.core.distributed import DistributedDataParallel as X",
                f"{CORE}.distributed.distributed_data_parallel.DistributedDataParallel",
            ),
            (
                "from megatron.core.transformer import TransformerConfig as X",
                f"{CORE}.transformer.transformer_config.TransformerConfig",
            ),
        ],
    )
    def test_class(self, line: str, target: str) -> None:
        check_found(f"{line}\n{FAST}X.__init__ = fast\n", target=f"{target}.__init__")

    def test_module_of_a_package(self) -> None:
        check_found(
            "from megatron.core import mpu\nmpu.get_tensor_model_parallel_rank = print\n",
            target=f"{CORE}.parallel_state.get_tensor_model_parallel_rank",
        )

    def test_a_name_no_known_release_has(self) -> None:
        check_found(
            f"from megatron.core.models.brand_new import NewModel\n{FAST}NewModel.forward = fast\n",
            target=f"{CORE}.models.brand_new.NewModel.forward",
        )


class TestAliases:
    def test_of_a_class(self) -> None:
        check_found(
            f"from megatron.core.models.gpt import GPTModel\nModel = GPTModel\n{FAST}Model.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_of_a_module(self) -> None:
        check_found(
            "import megatron.core.utils\nu = megatron.core.utils\nu.get_model_config = print\n",
            target=f"{CORE}.utils.get_model_config",
        )

    def test_of_an_alias(self) -> None:
        check_found(
            f"import megatron.core.models.gpt as g\nA = g.GPTModel\nB = A\n{FAST}B.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_loop_over_classes(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def fast(self): ...
            for cls in (GPTModel,):
                cls.forward = fast
            """,
            target=f"{GPT}.forward",
        )


class TestSubclasses:
    def test_of_the_same_file(self) -> None:
        finding = check_found(
            """
            from megatron.core.models.gpt import GPTModel
            class Mine(GPTModel):
                pass
            def fast(self): ...
            Mine.forward = fast
            """,
            target=f"{GPT}.forward",
        )
        assert "`Mine`" in finding.message

    def test_of_a_subclass(self) -> None:
        check_found(
            """
            import megatron.core.transformer.transformer_block as tb
            class A(tb.TransformerBlock): ...
            class B(A): ...
            def patch(block: B, fast):
                block.forward = fast
            """,
            target=f"{BLOCK}.forward",
        )

    def test_with_a_mixin_first(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            class Mixin: ...
            class Mine(Mixin, GPTModel): ...
            Mine._postprocess = print
            """,
            target=f"{GPT}._postprocess",
        )

    def test_in_another_file(self) -> None:
        check_found(
            {
                "models/mine.py": "from megatron.core.models.gpt import GPTModel\nclass Mine(GPTModel): ...\n",
                "models/__init__.py": "from .mine import Mine\n",
                "patches.py": "from models import Mine\ndef fast(self): ...\nMine.forward = fast\n",
            },
            target=f"{GPT}.forward",
            path="patches.py",
        )

    def test_that_defines_the_method_in_another_file(self) -> None:
        check_noop(
            {
                "mine.py": "from megatron.core.models.gpt import GPTModel\n"
                "class Mine(GPTModel):\n"
                "    def set_input_tensor(self): ...\n",
                "patches.py": "from mine import Mine\ndef fast(self): ...\nMine.set_input_tensor = fast\n",
            }
        )


def test_a_class_that_only_ends_like_megatrons() -> None:
    check_noop("from mcore_adapter.models import GPTModel\nGPTModel.forward = print\n")


def test_one_finding_says_why_it_is_sure() -> None:
    finding = check_found(
        f"from megatron.core.transformer.moe.router import TopKRouter\n{FAST}TopKRouter.routing = fast\n",
        target=f"{ROUTER}.routing",
    )
    assert finding.confidence == "certain"


def test_classes_that_a_loop_asks_for_by_name() -> None:
    """Names that no release has are left out: such a loop skips them."""
    found = found_in(
        """
        from megatron.core.transformer.moe import experts
        def patch(new):
            for name in ("TEGroupedMLP", "NotThere", "SequentialMLP"):
                cls = getattr(experts, name, None)
                if cls is not None:
                    cls.forward = new
        """
    )
    assert [(one.target.split(".")[-2], one.shape, one.confidence) for one in found] == [
        ("SequentialMLP", "class-attr", "certain"),
        ("TEGroupedMLP", "class-attr", "certain"),
    ]


def test_a_name_among_others_says_nothing_of_an_unknown_object() -> None:
    check_noop(
        """
        import megatron.core
        def patch(model, new):
            for name in ("lm_head", "output_layer"):
                head = getattr(model, name, None)
                if head is not None:
                    head.forward = new
        """
    )
