"""Calls that give back what they were given: the patch of their result is a patch of the model."""

import pytest
from checking import GPT, check_found

HEAD = "from copy import copy, deepcopy\nfrom megatron.core.models.gpt import GPTModel\ndef fast(self): ...\n"
CALLS = ["list", "tuple", "reversed", "iter", "sorted", "set", "copy", "deepcopy"]


@pytest.mark.parametrize("call", CALLS)
def test_calls_on_the_models_of_a_list(call: str) -> None:
    text = f"{HEAD}def patch(models: list[GPTModel]):\n    for model in {call}(models):\n        model.forward = fast\n"
    check_found(text, target=f"{GPT}.forward")
