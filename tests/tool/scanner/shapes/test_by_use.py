"""An object of which nothing is known but what is called on it nearby: in its function, or in all of its class."""

import pytest
from checking import GPT, check_found, check_noop

HEAD = "import megatron.core\ndef fast(self): ...\n"
TELLING = "shared_embedding_or_output_weight()"


def test_in_the_same_function() -> None:
    check_found(
        f"{HEAD}def patch(thing):\n    thing.{TELLING}\n    thing._preprocess = fast\n", target=f"{GPT}._preprocess"
    )


def test_in_another_function_it_is_another_object() -> None:
    check_noop(f"{HEAD}def look(thing):\n    thing.{TELLING}\ndef patch(thing):\n    thing.other_name = fast\n")


def test_an_attribute_of_self_is_the_same_in_all_of_the_class() -> None:
    text = f"""{HEAD}
class Worker:
    def look(self):
        return self.thing.{TELLING}

    def patch(self):
        self.thing.set_input_tensor = fast
"""
    finding = check_found(text, target=f"{GPT}.set_input_tensor")
    assert "`shared_embedding_or_output_weight` on line 6" in finding.message


@pytest.mark.parametrize(
    "value", ["fast.__get__(thing, TransformerLayer)", "MethodType(fast_of_a_layer, thing)", "fast.__get__(thing)"]
)
def test_what_the_annotation_says_is_not_left_open(value: str) -> None:
    """Whatever else the statement speaks of, and though the class has no such method."""
    text = f"""
from types import MethodType
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer.transformer_layer import TransformerLayer
def fast(self): ...
def fast_of_a_layer(self: TransformerLayer): ...
def patch(thing: GPTModel):
    thing.own_name = {value}
"""
    finding = check_found(text, target=f"{GPT}.own_name")
    assert finding.message.endswith("resolved from its annotation")
