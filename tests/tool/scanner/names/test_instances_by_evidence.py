"""Instances known by where they come from: functions, bound replacements, well-known seams."""

import pytest
from checking import GPT, MTP_LAYER, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom typing import Optional, Union, List\n"


class TestUnwrapModel:
    def test_megatrons(self) -> None:
        finding = check_found(
            """
            from megatron.core.utils import unwrap_model
            def patch(model, fast):
                model = unwrap_model(model)
                model.forward = fast.__get__(model)
            """,
            target=f"{GPT}.forward",
            confidence="likely",
        )
        assert "the result of `unwrap_model`" in finding.message

    def test_its_own_in_the_repository(self) -> None:
        check_found(
            {
                "utils.py": "import megatron.core\ndef unwrap_model(model, classes=None):\n    return model.module\n",
                "patches.py": "from utils import unwrap_model\n"
                "def patch(model, fast):\n"
                "    unwrap_model(model)._postprocess = fast\n",
            },
            target=f"{GPT}._postprocess",
        )

    def test_of_an_unrelated_library(self) -> None:
        check_noop(
            "from accelerate import unwrap_model\ndef patch(model, fast):\n    unwrap_model(model).forward = fast\n"
        )

    def test_of_a_wrapped_model(self) -> None:
        check_found(
            """
            from megatron.core.distributed import DistributedDataParallel as DDP
            def patch(model: DDP, fast):
                model.module.forward = fast
            """,
            target=f"{GPT}.forward",
        )


class TestBoundReplacements:
    def test_class_given_to_get(self) -> None:
        finding = check_found(
            f"{IMPORT}def fast(self): ...\ndef patch(model):\n    model.forward = fast.__get__(model, GPTModel)\n",
            target=f"{GPT}.forward",
        )
        assert "the class given to `__get__`" in finding.message

    def test_annotated_self(self) -> None:
        check_found(
            f"{IMPORT}def fast(self: GPTModel): ...\ndef patch(model):\n    model.forward = fast.__get__(model)\n",
            target=f"{GPT}.forward",
            confidence="likely",
        )

    def test_a_name_only_megatron_has(self) -> None:
        check_found(
            """
            import types, megatron.core
            def patch(model, fast):
                model.compute_language_model_loss = types.MethodType(fast, model)
            """,
            confidence="likely",
        )


class TestFunctions:
    def test_annotated_return(self) -> None:
        check_found(
            f"{IMPORT}def get() -> GPTModel: ...\ndef patch(fast):\n    get().forward = fast\n", target=f"{GPT}.forward"
        )

    def test_returned_expression(self) -> None:
        check_found(
            f"{IMPORT}def get(config):\n"
            "    model = GPTModel(config)\n"
            "    return model\n"
            "def patch(fast):\n"
            "    model = get(None)\n"
            "    model.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_parameter_known_from_the_call(self) -> None:
        finding = check_found(
            f"""{IMPORT}
def patch(model, fast):
    model.forward = fast
def main(config, fast):
    model = GPTModel(config)
    patch(model, fast)
""",
            target=f"{GPT}.forward",
        )
        assert "line 7" in finding.message

    def test_parameter_known_from_a_keyword(self) -> None:
        check_found(
            f"{IMPORT}def patch(fast, model=None):\n    model.forward = fast\npatch(print, model=GPTModel(None))\n",
            target=f"{GPT}.forward",
        )

    def test_method_called_on_self(self) -> None:
        check_found(
            f"""{IMPORT}
class Actor:
    def run(self, config):
        self._patch(GPTModel(config))
    def _patch(self, model):
        model._postprocess = print
""",
            target=f"{GPT}._postprocess",
        )

    def test_cast(self) -> None:
        check_found(
            f"from typing import cast\n{IMPORT}def patch(model, fast):\n    cast(GPTModel, model).forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_walrus(self) -> None:
        check_found(
            f"{IMPORT}def patch(get, fast):\n"
            "    if (model := GPTModel(None)) is not None:\n"
            "        model.forward = fast\n",
            target=f"{GPT}.forward",
        )


class TestWellKnownSeams:
    @pytest.mark.parametrize(
        ("statement", "target"),
        [
            ("model.output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("self.model.output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("model._postprocess = fast", f"{GPT}._postprocess"),
            ("layer._get_embeddings = fast", f"{MTP_LAYER}._get_embeddings"),
            ("mtp_layer._checkpointed_forward = fast", f"{MTP_LAYER}._checkpointed_forward"),
            ("model.output_layer = Head(8)", f"{GPT}.output_layer"),
        ],
    )
    def test_on_an_unknown_object(self, statement: str, target: str) -> None:
        finding = check_found(
            f"import megatron.core\ndef patch(self, model, layer, mtp_layer, output_layer, fast):\n    {statement}\n",
            target=target,
            confidence="likely",
        )
        assert "likely" in finding.message

    @pytest.mark.parametrize(
        "statement", ["model.output_layer.forward = fast", "model._postprocess = fast", "model.output_layer = Head(8)"]
    )
    def test_in_code_that_knows_nothing_of_megatron(self, statement: str) -> None:
        check_noop(f"import torch\ndef patch(model, fast):\n    {statement}\n")

    def test_a_plain_forward_on_an_unknown_object(self) -> None:
        check_noop("import megatron.core\ndef patch(model, fast):\n    model.forward = fast\n")
