"""Models of the repository's own that keep a hook from arriving: which method, how, and what could hand it on."""

import pytest
from rooms import RELEASES, names_of

from mcore_unpatch.effects.hook_takers import Hook, HookTaker, hook_takers
from mcore_unpatch.megatron.parts import HOOK

HEAD = """\
import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.transformer.mlp import MLP
"""
WRAPPER = """
class Model(torch.nn.Module):
    def __init__(self, config):
        self.mlp = MLP(config)
        self.language_model = GPTModel(config)
    def forward(self, x{}):
        x = self.mlp(x)
        return self.language_model(x{})
"""


def taken(code: str, path: str = "a.py") -> list[HookTaker]:
    return hook_takers(names_of({path: HEAD + code}), Hook(*HOOK), path, RELEASES)


def subclass(parameters: str, body: str, method: str = "forward", base: str = "GPTModel") -> str:
    return f"class Model({base}):\n    def {method}(self, x{parameters}):\n        {body}\n"


HEADLESS = "    def __init__(self, config):\n        super().__init__(config, post_process={})\n"
CODE = {
    subclass("", "return super().forward(x)"): "subclass GPTModel.forward refused +1",
    subclass("", "return self._postprocess(x)"): "subclass GPTModel.forward refused +1",
    subclass("", "return x"): "subclass GPTModel.forward refused",
    subclass("", "return x", "_postprocess"): "subclass GPTModel._postprocess refused",
    subclass(", output_processor=None", "return x"): "subclass GPTModel.forward unread",
    subclass(", output_processor=None", "return output_processor(x)"): "",
    subclass(", **rest", "return super().forward(x, **rest)"): "",
    subclass(", **rest", "return super().forward(x, rest['y'])"): "subclass GPTModel.forward swallowed +1",
    subclass(", *args", "return x"): "",  # by its place
    subclass("", "return super().forward(x)") + HEADLESS.format(False): "",
    subclass("", "return super().forward(x)") + HEADLESS.format("last"): "subclass GPTModel.forward refused +1",
    subclass("", "self.post_process = last; return super().forward(x)"): "subclass GPTModel.forward refused",
    subclass("", "return x", base="HybridModel"): "",  # it takes no hook itself
    subclass(", output_processor=None", "return x", base="HybridModel"): "subclass HybridModel.forward unread",
    subclass("", "return x", base="torch.nn.Module"): "",
    WRAPPER.format("", ""): "wrapper GPTModel.forward refused +2",
    WRAPPER.format(", **kwargs", ", **kwargs"): "",
    WRAPPER.format("", "").replace("GPTModel(config)", "MLP(config)"): "",
}


@pytest.mark.parametrize("code", CODE)
def test_what_becomes_of_the_hook(code: str) -> None:
    found = taken(code)
    said = []
    for one in found:
        call = f" +{one.call - one.line}" if one.call else ""
        said.append(f"{one.shape} {'.'.join(one.target.split('.')[-2:])} {one.dropped}{call}")
    assert "; ".join(said) == CODE[code]


def test_the_place_and_the_releases() -> None:
    [one] = taken(subclass(", **rest", "return rest['y']"))
    assert (one.path, one.line, one.column, one.owner, one.method, one.rest) == (
        "a.py",
        6,
        5,
        "Model",
        "forward",
        "rest",
    )
    assert (one.releases[0], one.target) == ("0.18.0", "megatron.core.models.gpt.gpt_model.GPTModel.forward")
    assert hook_takers(names_of(HEAD + subclass("", "return x")), Hook(*HOOK), "a.py", RELEASES[:10]) == []


def test_tests_and_copies_of_the_library_are_left_out() -> None:
    assert taken(subclass("", "return x"), "tests/test_a.py") == []
    assert taken(subclass("", "return x"), "third_party/megatron/core/models/gpt/gpt_model.py") == []
