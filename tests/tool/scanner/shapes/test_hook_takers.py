"""Models of the repository's own that keep the output hook from arriving."""

from checking import GPT, HYBRID, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def subclass(parameters: str, body: str, method: str = "forward", base: str = "GPTModel") -> str:
    hybrid = "from megatron.core.models.hybrid.hybrid_model import HybridModel\n"
    return f"{IMPORT}{hybrid}class Model({base}):\n    def {method}(self, x{parameters}):\n        {body}\n"


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
