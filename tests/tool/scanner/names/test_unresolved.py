"""What nothing is known of beside what is: a choice between the two, and a class, base or annotation from elsewhere."""

import pytest
from checking import CORE, check_found, check_noop

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom elsewhere import Base, Mine, make\n"


@pytest.mark.parametrize("annotation", ["make()[GPTModel]", "Mine[GPTModel]", "'no python'", "Mine"])
def test_an_annotation_that_says_nothing(annotation: str) -> None:
    check_noop(f"{IMPORT}def patch(thing: {annotation}, fast):\n    thing.step = fast\n")


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
