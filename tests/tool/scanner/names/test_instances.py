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
