"""What nothing is known of beside what is: a choice between the two, and a class, base or annotation from elsewhere."""

import pytest
from checking import CORE, GPT, LAYER, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom elsewhere import Base, Mine, make\n"


@pytest.mark.parametrize(
    "choice",
    [
        "Mine if flag else GPTModel",
        "GPTModel if flag else Mine",
        "Mine or GPTModel",
        "(Mine := GPTModel)",
    ],
)
def test_one_side_of_a_choice(choice: str) -> None:
    check_found(
        f"{IMPORT}def patch(flag, fast):\n    cls = {choice}\n    cls.forward = fast\n", target=f"{GPT}.forward"
    )


@pytest.mark.parametrize("annotation", ["make()[GPTModel]", "Mine[GPTModel]", "'no python'", "Mine"])
def test_an_annotation_that_says_nothing(annotation: str) -> None:
    check_noop(f"{IMPORT}def patch(thing: {annotation}, fast):\n    thing.step = fast\n")


def test_a_method_of_a_class_whose_base_is_elsewhere() -> None:
    check_found(
        f"{IMPORT}class Own(Base, make()):\n    pass\nGPTModel.forward = Own.fast\n", line=5, target=f"{GPT}.forward"
    )


def test_a_method_that_a_base_of_the_repository_has() -> None:
    finding = check_found(
        f"""{IMPORT}
class First(Base):
    def fast(self, input_ids, *, labels): ...
class Own(make(), First):
    pass
GPTModel.forward = Own.fast
""",
        target=f"{GPT}.forward",
    )
    assert "`position_ids`" in finding.message


def test_a_replacement_whose_self_is_of_another_class() -> None:
    bind = "from types import MethodType\ndef fast(self: {cls}): ...\ndef patch(x):\n    x.odd = MethodType(fast, x)\n"
    check_noop(IMPORT + bind.format(cls="Mine"))
    check_found(IMPORT + bind.format(cls="GPTModel"), target=f"{GPT}.odd", confidence="likely")


@pytest.mark.parametrize(("owner", "is_one"), [("TransformerBlock(c, s)", True), ("TransformerBlock", False)])
def test_layers_are_of_a_block_not_of_its_class(owner: str, is_one: bool) -> None:
    source = f"""
from megatron.core.transformer.transformer_block import TransformerBlock
def patch(c, s, fast):
    for layer in {owner}.layers:
        layer.forward = fast
"""
    check_found(source, target=f"{LAYER}.forward") if is_one else check_noop(source)


@pytest.mark.parametrize(("prefix", "is_one"), [("megatron.core", True), ("mine", False)])
def test_a_walk_over_modules_with_a_name_of_nobody_is_one_where_it_asks_for_megatron(prefix: str, is_one: bool) -> None:
    source = f"""
import sys
import megatron.core
def swap(new):
    for name, module in list(sys.modules.items()):
        if name.startswith("{prefix}") and hasattr(module, "name_of_nobody"):
            module.name_of_nobody = new
"""
    check_found(source, target=f"{CORE}.name_of_nobody", confidence="likely") if is_one else check_noop(source)


@pytest.mark.parametrize(("text", "is_one"), [("inspect.getsource(cls)", True), ("'x = 1'", False)])
def test_a_helper_that_runs_source_of_its_own(text: str, is_one: bool) -> None:
    source = f"""
import inspect
from megatron.core.models.gpt import GPTModel
def read(cls):
    return inspect.getsource(cls)
def patch_source(cls):
    text = {text}
    exec(text)
patch_source(GPTModel.forward)
"""
    check_found(source, shape="source-rewrite") if is_one else check_noop(source)


@pytest.mark.parametrize("call", ["list", "tuple", "reversed", "iter", "next", "sorted", "set", "copy", "deepcopy"])
def test_a_call_that_hands_through_what_it_gets(call: str) -> None:
    loop = f"    for model in {call}(models):\n        model.forward = fast\n"
    check_found(f"{IMPORT}def patch(models: list[GPTModel], fast):\n{loop}", target=f"{GPT}.forward")
