"""Instances are known by what the code says of them; a finding says how sure it is, and why."""

import pytest
from checking import BLOCK, CORE, GPT, HYBRID, LAYER, MTP_LAYER, ROUTER, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom typing import Optional, Union, List\n"


@pytest.mark.parametrize(
    "annotation",
    [
        "GPTModel",
        '"GPTModel"',
        "Optional[GPTModel]",
        "GPTModel | None",
        '"GPTModel | None"',
        "Union[GPTModel, None]",
        "None | GPTModel",
    ],
)
def test_annotated_parameter(annotation: str) -> None:
    finding = check_found(
        f"{IMPORT}def patch(model: {annotation}, fast):\n    model.forward = fast\n",
        target=f"{GPT}.forward",
        confidence="certain",
    )
    assert "annotation" in finding.message


def test_annotated_variable() -> None:
    check_found(
        f"{IMPORT}def patch(get):\n    model: GPTModel = get()\n    model.forward = print\n", target=f"{GPT}.forward"
    )


def test_annotated_attribute_of_the_class() -> None:
    check_found(
        f"""{IMPORT}
class Actor:
    model: GPTModel
    def patch(self, fast):
        self.model.forward = fast
""",
        target=f"{GPT}.forward",
    )


@pytest.mark.parametrize("annotation", ["list[GPTModel]", "List[GPTModel]"])
def test_item_of_an_annotated_list(annotation: str) -> None:
    check_found(
        f"{IMPORT}def patch(models: {annotation}, fast):\n    for model in models:\n        model.forward = fast\n",
        target=f"{GPT}.forward",
    )


def test_first_of_an_annotated_list() -> None:
    check_found(
        f"{IMPORT}def patch(models: list[GPTModel], fast):\n    models[0].forward = fast\n", target=f"{GPT}.forward"
    )


def test_constructor() -> None:
    finding = check_found(
        f"{IMPORT}def build(config, fast):\n    model = GPTModel(config)\n    model.forward = fast\n    return model\n",
        target=f"{GPT}.forward",
        confidence="certain",
    )
    assert "line 4" in finding.message


def test_constructor_kept_on_self() -> None:
    check_found(
        f"""{IMPORT}
class Actor:
    def __init__(self, config):
        self.model = GPTModel(config)
    def patch(self, fast):
        self.model.forward = fast
""",
        target=f"{GPT}.forward",
    )


@pytest.mark.parametrize("call", [".cuda()", ".to('cpu')", ".eval()", ".bfloat16()"])
def test_moved_after_construction(call: str) -> None:
    check_found(f"{IMPORT}model = GPTModel(None){call}\nmodel.forward = print\n", target=f"{GPT}.forward")


class TestIsinstance:
    def test_positive(self) -> None:
        finding = check_found(
            f"{IMPORT}def patch(model, fast):\n    if isinstance(model, GPTModel):\n        model.forward = fast\n",
            target=f"{GPT}.forward",
            confidence="certain",
        )
        assert "isinstance check on line 4" in finding.message

    def test_does_not_hold_in_the_other_branch(self) -> None:
        check_noop(
            f"{IMPORT}def patch(model, fast):\n"
            "    if isinstance(model, GPTModel):\n"
            "        pass\n"
            "    else:\n"
            "        model.forward = fast\n"
        )

    def test_negated_early_return(self) -> None:
        check_found(
            f"{IMPORT}def patch(model, fast):\n"
            "    if not isinstance(model, GPTModel):\n"
            "        return\n"
            "    model.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_negated_continue_in_a_loop(self) -> None:
        check_found(
            f"""{IMPORT}
def patch(models, fast):
    for model in models:
        if not isinstance(model, GPTModel):
            continue
        model.forward = fast
""",
            target=f"{GPT}.forward",
        )

    def test_assert(self) -> None:
        check_found(
            f"{IMPORT}def patch(model, fast):\n"
            "    assert isinstance(model, GPTModel), 'no'\n"
            "    model.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_tuple_of_classes(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            from mine import Other
            def patch(model, fast):
                if isinstance(model, (Other, GPTModel)):
                    model.forward = fast
            """,
            target=f"{GPT}.forward",
        )

    def test_and(self) -> None:
        check_found(
            f"{IMPORT}def patch(model, on, fast):\n"
            "    if on and isinstance(model, GPTModel):\n"
            "        model.forward = fast\n",
            target=f"{GPT}.forward",
        )

    def test_modules_of_a_model(self) -> None:
        check_found(
            """
            from megatron.core.transformer.moe.router import TopKRouter
            def patch(model, fast):
                for name, module in model.named_modules():
                    if isinstance(module, TopKRouter):
                        module.gating = fast
            """,
            target=f"{ROUTER}.gating",
        )


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


class TestIteration:
    def test_mtp_layers(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, fast):\n"
            "    for layer in model.mtp.layers:\n"
            "        layer._get_embeddings = fast\n",
            target=f"{MTP_LAYER}._get_embeddings",
            confidence="certain",
            seam="mtp",
        )

    def test_mtp_layers_of_an_unknown_model(self) -> None:
        check_found(
            """
            import megatron.core
            def patch(model, fast):
                for layer in model.mtp.layers:
                    layer.forward = fast
            """,
            target=f"{MTP_LAYER}.forward",
            confidence="likely",
        )

    def test_decoder_layers(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, fast):\n"
            "    for layer in model.decoder.layers:\n"
            "        layer.forward = fast\n",
            target=f"{LAYER}.forward",
        )

    def test_enumerated(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, fast):\n"
            "    for i, layer in enumerate(model.decoder.layers):\n"
            "        layer.forward = fast\n",
            target=f"{LAYER}.forward",
        )

    def test_by_index(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, fast):\n    model.mtp.layers[0].forward = fast\n",
            target=f"{MTP_LAYER}.forward",
        )

    def test_through_submodules(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, fast):\n"
            "    for layer in model.decoder.layers:\n"
            "        layer.self_attention.forward = fast\n",
            target=f"{CORE}.transformer.attention.SelfAttention.forward",
        )

    def test_model_chunks(self) -> None:
        check_found(
            f"{IMPORT}def patch(chunks: list[GPTModel], fast):\n"
            "    for chunk in chunks:\n"
            "        chunk.decoder.forward = fast\n",
            target=f"{BLOCK}.forward",
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


def test_hybrid_model() -> None:
    check_found(
        """
        from megatron.core.models.hybrid.hybrid_model import HybridModel
        def patch(model: HybridModel, fast):
            model.forward = fast
        """,
        target=f"{HYBRID}.forward",
    )


def test_the_same_name_for_two_things() -> None:
    check_found(
        f"{IMPORT}def patch(get, fast):\n"
        "    model = get()\n"
        "    model.forward = fast\n"
        "    model = GPTModel(None)\n"
        "    model.forward = fast\n",
        target=f"{GPT}.forward",
        line=7,
    )
