"""Calls that give back what they were given: the patch of their result is a patch of the model."""

import pytest
from checking import GPT, check_found

HEAD = "from copy import copy, deepcopy\nfrom megatron.core.models.gpt import GPTModel\ndef fast(self): ...\n"
METHODS = ["to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_"]
CALLS = ["list", "tuple", "reversed", "iter", "sorted", "set", "copy", "deepcopy"]


@pytest.mark.parametrize("method", METHODS)
def test_methods(method: str) -> None:
    check_found(f"{HEAD}model = GPTModel().{method}(1)\nmodel.forward = fast\n", target=f"{GPT}.forward")


@pytest.mark.parametrize("call", CALLS)
def test_calls_on_the_models_of_a_list(call: str) -> None:
    text = f"{HEAD}def patch(models: list[GPTModel]):\n    for model in {call}(models):\n        model.forward = fast\n"
    check_found(text, target=f"{GPT}.forward")


def test_a_list_that_is_copied() -> None:
    text = f"{HEAD}def patch(models: list[GPTModel]):\n    for model in models.copy():\n        model.forward = fast\n"
    check_found(text, target=f"{GPT}.forward")


@pytest.mark.parametrize("name", ["unwrap_model", "unwrap_module", "unwrap_megatron_model", "unwrap_ddp"])
def test_unwrappers_of_the_repository(name: str) -> None:
    check_found(
        {
            "utils.py": f"import megatron.core\ndef {name}(model, classes=None):\n    return model.module\n",
            "patches.py": f"from utils import {name}\ndef patch(model, fast):\n    {name}(model)._postprocess = fast\n",
        },
        target=f"{GPT}._postprocess",
    )
