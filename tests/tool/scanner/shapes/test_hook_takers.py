"""Models of the repository's own that keep the output hook from arriving."""

import pytest
from checking import GPT, HYBRID, check_found, check_noop, found_in

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def subclass(parameters: str, body: str, method: str = "forward", base: str = "GPTModel") -> str:
    hybrid = "from megatron.core.models.hybrid.hybrid_model import HybridModel\n"
    return f"{IMPORT}{hybrid}class Model({base}):\n    def {method}(self, x{parameters}):\n        {body}\n"


@pytest.mark.parametrize(
    ("parameters", "body", "said"),
    [
        ("", "return super().forward(x)", "takes no `output_processor`: a TypeError for whoever passes"),
        (", *, output_processor=None", "return super().forward(x)", "accepts `output_processor` but never calls it"),
        (", **kwargs", "return super().forward(x)", "accepts `output_processor` in `**kwargs` but never calls it"),
        (", **kwargs", "return super().forward(x, y=kwargs['y'])", "accepts `output_processor` in `**kwargs`"),
    ],
)
def test_a_subclass_that_keeps_it(parameters: str, body: str, said: str) -> None:
    finding = check_found(
        subclass(parameters, body), rule="MCU105", shape="subclass", target=f"{GPT}.forward", verdict="steps", line=4
    )
    assert said in finding.message
    assert finding.steps[-1] == "Pass both on in the call on line 5: Megatron takes them since 0.18."


@pytest.mark.parametrize(
    ("parameters", "body"),
    [
        (", **kwargs", "return super().forward(x, **kwargs)"),
        (", output_processor=None", "return super().forward(x, output_processor=output_processor)"),
        (", *args, **kwargs", "return super().forward(x, *args, **kwargs)"),
        (", **kwargs", "return kwargs['output_processor'](hidden_states=x)"),
    ],
)
def test_one_that_hands_it_on(parameters: str, body: str) -> None:
    check_noop(subclass(parameters, body))


def test_postprocess() -> None:
    finding = check_found(subclass("", "return x", "_postprocess"), target=f"{GPT}._postprocess", rule="MCU105")
    assert finding.steps[-1].startswith("Call the processor with the hook's keywords")


def test_a_model_without_the_hook_only_if_it_takes_it() -> None:
    check_noop(subclass("", "return super().forward(x)", base="HybridModel"))
    check_found(
        subclass(", output_processor=None", "return super().forward(x)", base="HybridModel"),
        target=f"{HYBRID}.forward",
        rule="MCU105",
    )


WRAPPER = """
class Vision(torch.nn.Module):
    def __init__(self, config):
        self.language_model = GPTModel(config)
    def forward(self, x{}):
        return self.language_model(x{})
"""


def test_a_wrapper() -> None:
    source = f"{IMPORT}import torch\n{WRAPPER.format('', '')}"
    finding = check_found(source, rule="MCU105", shape="wrapper", target=f"{GPT}.forward", line=7)
    assert finding.steps == (
        "Give `Vision.forward` (line 7) the parameters `output_processor=None, output_processor_context=None`.",
        "Pass both on in the call on line 8: Megatron takes them since 0.18.",
    )
    check_noop(f"{IMPORT}import torch\n{WRAPPER.format(', **kwargs', ', **kwargs')}")
    layer = "        self.mlp = MLP(config)\n    def forward(self, x):\n        x = self.mlp(x)\n"
    own = source.replace("    def forward(self, x):\n", layer)
    check_found(f"from megatron.core.transformer.mlp import MLP\n{own}", rule="MCU105", target=f"{GPT}.forward")


def test_not_on_a_release_without_the_hook() -> None:
    assert found_in(subclass("", "return super().forward(x)"), target=(0, 17)) == []


def test_a_model_of_another_kind() -> None:
    check_noop(
        "from megatron.core.models.T5.t5_model import T5Model\nclass GPTModel(T5Model):\n"
        "    def forward(self, x):\n        return x\n"
    )
    held = WRAPPER.format("", "").replace("GPTModel", "T5Model")
    check_noop(f"import torch\nfrom megatron.core.models.T5.t5_model import T5Model\n{held}")
