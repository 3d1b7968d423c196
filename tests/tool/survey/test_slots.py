"""What a ModuleSpec names is read from Megatron's own specs."""

import ast
import importlib.util
from pathlib import Path

from checking import found_in

from mcore_unpatch.building.build import build
from mcore_unpatch.library.detailed import Releases
from mcore_unpatch.library.facts import Heart, How
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS

CLASSES = ("Attention", "Dense", "Fast", "Fused", "Layer", "Local", "Unnamed")

SPECS = """
from functools import partial
class Attention: ...
class Fused(Attention): ...
class Local(Attention): ...
class Dense: ...
class Fast: ...
class Layer: ...
class Unnamed: ...
class FastSpecProvider:
    def experts(self, many):
        if many:
            return Fast, LayerSubmodules()
        return not_none(Dense).as_submodule
class LayerSubmodules:
    attention: object = Attention
    other: int
def attention(te):
    return ModuleSpec(module=Fused if te else Local, submodules=None)
def get_layer_spec(te, backend):
    mlp, parts = backend.experts(te)
    return ModuleSpec(module=Layer, submodules=LayerSubmodules(attention=attention(te), mlp=partial(mlp, parts)))
def get_block_spec():
    return Unnamed
"""


def test_slots_are_read_through_variables_functions_and_providers() -> None:
    packed = build(Heart(("toy",), "toy"), "1", [("toy/__init__.py", SPECS.encode())])
    model = Releases(packed).at(0)
    named = {name: [use.place for use in model.uses(f"toy.{name}") if use.how == How.SLOT] for name in CLASSES}
    assert {name: slots for name, slots in named.items() if slots} == {
        "Attention": ["LayerSubmodules.attention"],
        "Dense": ["LayerSubmodules.mlp"],
        "Fast": ["LayerSubmodules.mlp"],
        "Fused": ["LayerSubmodules.attention"],
        "Layer": ["ModuleSpec.module"],
        "Local": ["LayerSubmodules.attention"],
    }


PATCH = """
from megatron.core.{module} import {name}
def new(self, *args): ...
{name}.forward = new
"""


def test_megatron_compares_these_classes_with_the_module_of_a_spec() -> None:
    """Read from the installed release."""
    compared = set()
    for file in Path(importlib.util.find_spec("megatron.core").submodule_search_locations[0]).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".module " in text or "down_proj in" in text else ():
            if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith((".module", "_down_proj")):
                compared |= {one.id for one in ast.walk(node.comparators[0]) if isinstance(one, ast.Name)}
    assert compared == COMPARED_IN_SPECS.keys() - {"MoELayer"}  # which older ones compare


def test_a_class_that_models_build_by_name_has_no_answer_in_specs() -> None:
    """`GPTModel` builds its output layer of `ColumnParallelLinear`, whatever specs name."""
    [whole] = found_in(PATCH.format(module="tensor_parallel.layers", name="ColumnParallelLinear"))
    assert whole.verdict == "stays"
    mtp = PATCH.format(module="transformer.multi_token_prediction", name="MultiTokenPredictionBlock")
    assert "ModuleSpec" not in str(found_in(mtp)[0].replacement)
    [module] = found_in("from megatron.core.tensor_parallel import layers\nlayers.ColumnParallelLinear = Mine\n")
    assert module.verdict == "stays"
    [other] = found_in(PATCH.format(module="tensor_parallel.layers", name="RowParallelLinear"))
    assert other.verdict == "by hand"
