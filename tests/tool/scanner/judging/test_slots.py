"""What a ModuleSpec names is read from Megatron's own specs, and where this repository makes its specs is said."""

import ast
import importlib.util
from pathlib import Path

import pytest
from checking import found_in

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.build import build
from mcore_unpatch.library.model import SLOT, Library
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
    library = Library("toy", ("toy",))
    model = build(library, "1", [("toy/__init__.py", SPECS.encode())])
    named = {name: [use.place for use in model.uses(f"toy.{name}") if use.how == SLOT] for name in CLASSES}
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


MAKERS = {
    "pkg/patches.py": PATCH.format(module="transformer.attention", name="SelfAttention"),
    "pkg/provider.py": "from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec as local\n"
    "def build(config):\n    return local(config.experts)\n",
    "pkg/near.py": "from megatron.core.models.gpt import gpt_layer_specs\n"
    "def get_my_spec(): ...\nget_my_spec()\nspec = gpt_layer_specs.get_gpt_layer_local_spec()\n",
    "a.py": "from megatron.core.transformer import spec_utils\nfrom megatron.core.transformer.attention import (\n"
    "    SelfAttention as Attention)\nnorm = spec_utils.ModuleSpec(module=print)\n"
    "spec = spec_utils.ModuleSpec(\n    module=get_my_spec(Attention))\n",
    "b.py": "from megatron.core.models.backends import LocalSpecProvider\n"
    "class OurSpecProvider(LocalSpecProvider):\n    def attention(self):\n        return SelfAttention\n",
    "other.py": "from megatron.core.transformer.spec_utils import ModuleSpec\nspec = ModuleSpec(module=print)\n",
    "tests/test_specs.py": "from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec\n"
    "get_gpt_layer_local_spec()\n",
}
ELSEWHERE = "Keep the patch for models whose spec is made elsewhere."


def test_where_specs_name_the_class_is_a_step_more() -> None:
    [finding] = found_in(MAKERS, fixes=True)
    assert finding.steps[-1] == f"Specs name it here: a.py:6 (`SelfAttention`), b.py:4 (`SelfAttention`). {ELSEWHERE}"
    more = {path.replace("b.py", name): text for name in ("b.py", "c.py") for path, text in MAKERS.items()}
    assert (
        "a.py:6 (`SelfAttention`), b.py:4 (`SelfAttention`) and in other files."
        in found_in(more, fixes=True)[0].steps[-1]
    )


@pytest.mark.parametrize(
    ("set_to", "line"),
    [
        ("attention = mine.Fast if mine.fast() else SelfAttention", 3),
        ("if mine.fast():\n    attention = SelfAttention\nelse:\n    attention = mine.Fast", 4),
    ],
)
def test_a_spec_may_name_a_class_by_a_variable(set_to: str, line: int) -> None:
    source = "from megatron.core.transformer.spec_utils import ModuleSpec\nimport mine\n"
    source += f"{set_to}\nspec = ModuleSpec(module=attention)\nmine.other = SelfAttention\n"
    [finding] = found_in({"pkg/patches.py": MAKERS["pkg/patches.py"], "a.py": source}, fixes=True)
    assert finding.steps[-1] == f"Specs name it here: a.py:{line} (`SelfAttention`). {ELSEWHERE}"


def test_that_megatron_makes_the_specs_is_not_denied() -> None:
    [finding] = found_in({name: MAKERS[name] for name in ("pkg/patches.py", "pkg/near.py")}, fixes=True)
    assert "not seen to make" not in finding.steps[-1]
    assert "Megatron's own functions" in finding.steps[-1]


def test_without_specs_that_is_said_and_of_other_patches_nothing() -> None:
    [alone] = found_in({name: MAKERS[name] for name in ("pkg/patches.py", "other.py")}, fixes=True)
    assert "not seen to name it" in alone.steps[-1] and alone.steps[-1].endswith(ELSEWHERE)
    other = "from megatron.core.models.gpt import GPTModel\ndef new(self): ...\nGPTModel.set_input_tensor = new\n"
    found = found_in({**MAKERS, "pkg/patches.py": other}, fixes=True)
    assert all("elsewhere" not in step for finding in found for step in finding.steps)


def test_a_class_that_models_build_by_name_has_no_answer_in_specs() -> None:
    """`GPTModel` builds its output layer of `ColumnParallelLinear`, whatever specs name."""
    [whole] = found_in(PATCH.format(module="tensor_parallel.layers", name="ColumnParallelLinear"))
    assert whole.verdict == "keep"
    mtp = PATCH.format(module="transformer.multi_token_prediction", name="MultiTokenPredictionBlock")
    assert "ModuleSpec" not in str(found_in(mtp)[0].replacement)
    [module] = found_in("from megatron.core.tensor_parallel import layers\nlayers.ColumnParallelLinear = Mine\n")
    assert module.verdict == "keep"
    [other] = found_in(PATCH.format(module="tensor_parallel.layers", name="RowParallelLinear"))
    assert other.verdict == "steps"


def on(release: str, source: str) -> Finding:
    """What is found in a repository that runs one release."""
    [finding] = found_in({"a.py": source, "requirements.txt": f"megatron-core=={release}\n"})
    return finding


TE = "from megatron.core.extensions import transformer_engine\nclass Mine: ...\ntransformer_engine.{} = Mine\n"


def test_what_no_spec_reaches_is_of_the_judged_releases() -> None:
    source = TE.format("TENorm")
    assert "`MambaStack` builds it by name, out of reach of a spec" in str(on("0.12.1", source).steps)
    assert ", `_TENormWithResidual` and `HybridStack` build it by name" in str(on("0.19.2", source).steps)
