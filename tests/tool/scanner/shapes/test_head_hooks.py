"""Forward hooks on the LM head, which a processor of the hidden states goes around."""

import pytest
from checking import GPT, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


@pytest.mark.parametrize(
    "code",
    [
        "model.output_layer.register_forward_hook(look)",
        "model.output_layer.register_forward_pre_hook(look, with_kwargs=True)",
        "head = model.output_layer\n    head.register_forward_hook(look)",
        "getattr(model, 'output_layer').register_forward_hook(look)",
    ],
)
def test_a_hook_on_the_head(code: str) -> None:
    finding = check_found(
        f"{IMPORT}def f(model: GPTModel, look):\n    {code}\n",
        rule="MCU106",
        shape="forward-hook",
        target=f"{GPT}.output_layer.forward",
        verdict="steps",
    )
    assert not finding.breaks  # it is called with other arguments than `forward`


@pytest.mark.parametrize(
    "code",
    [
        "model.decoder.register_forward_hook(look)",
        "model.output_layer.register_full_backward_hook(look)",
        "model.output_layer.weight.register_hook(look)",
    ],
)
def test_hooks_that_a_processor_leaves_alone(code: str) -> None:
    check_noop(f"{IMPORT}def f(model: GPTModel, look):\n    {code}\n")


def test_the_head_of_a_model_of_transformers() -> None:
    code = "from megatron.core import utils\ndef f(model, look):\n    output_layer = {}\n"
    code += "    output_layer.register_forward_hook(look)\n"
    check_noop(code.format("model.get_output_embeddings()"))
    check_found(code.format("model.head()"), rule="MCU106", confidence="likely")
