"""Classes that a repository hands to Megatron: said to raise only where a spec, or a value, gets them there."""

from __future__ import annotations

import pytest

from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

HEAD = """\
from functools import partial
from megatron.core.models.hybrid.hybrid_block import HybridStack
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import nn


"""
OLD_INIT = "    def __init__(self, config, submodules=None, is_expert=False):\n        super().__init__(config)\n"
HANDS_ON = "    def __init__(self, config, *args, **kwargs):\n        super().__init__(config, *args, **kwargs)\n"
PASSES = "raises: `TransformerLayer.__init__` passes `pg_collection`, `is_mtp_layer`"
ALL_THREE = f"{PASSES}, `name`, which `Mine.__init__` does not take"
SET = "changes: `mlp` of the specs that Megatron makes is no ModuleSpec on megatron-core 0.19.2 but a `MlpBuilder`: "
SET += "nobody reads what is set here"  # so Megatron does not build it
SUBCLASS, MODULE, TORCH = (f"class Mine({base}):\n{OLD_INIT}" for base in ("MLP", "MegatronModule", "nn.Module"))
BLOCK = """\
class Mine(TransformerLayer):
    def __init__(self, config, submodules, layer_number=1, pg_collection=None):
        super().__init__(config, submodules, layer_number)

spec = ModuleSpec(module=Mine)
"""
STACK = "`HybridStack.__init__` passes `add_layer_offset`, `name`, which `Mine.__init__` does not take"
SPEC = "\nspec = TransformerLayerSubmodules(mlp={})\n"
OWN_FIELDS = """
class OwnSubmodules(TransformerLayerSubmodules):
    second_mlp: type = None

"""

CASES = {
    "named in a slot": (SUBCLASS + SPEC.format("ModuleSpec(module=Mine)"), ALL_THREE),
    "named without a ModuleSpec": (SUBCLASS + SPEC.format("Mine"), ALL_THREE),
    "named by a partial": (SUBCLASS + SPEC.format("partial(Mine, is_expert=True)"), ALL_THREE),
    "no subclass of what the slot has": (MODULE + SPEC.format("ModuleSpec(module=Mine)"), ALL_THREE),
    "no class of Megatron's": (TORCH + SPEC.format("ModuleSpec(module=Mine)"), ALL_THREE),
    "by a variable": (
        SUBCLASS + "\ndef make():\n    mlp = ModuleSpec(module=Mine)\n    return TransformerLayerSubmodules(mlp=mlp)\n",
        ALL_THREE,
    ),
    "by a function": (
        SUBCLASS + "\ndef mlp():\n    return ModuleSpec(module=Mine)\n" + SPEC.format("mlp()"),
        ALL_THREE,
    ),
    "put into a spec": (SUBCLASS + "\ndef change(spec):\n    spec.submodules.mlp.module = Mine\n", SET),
    "put into another field": (SUBCLASS + "\ndef change(it):\n    it.submodules.cross_attention.module = Mine\n", ""),
    "put into a field of which it is not known who builds it": (
        f"class Mine(nn.Module):\n{OLD_INIT}\ndef change(it):\n    it.submodules.core_attention = Mine\n",
        "",
    ),
    "a constructor that is inherited": (
        "class Mine(MLP):\n    pass\n" + SPEC.format("ModuleSpec(module=Mine)"),
        f"{PASSES}, which `MLP.__init__` does not take, the constructor of `Mine`",
    ),
    "a constructor that hands on": (
        f"class Mine(MLP):\n{HANDS_ON}" + SPEC.format("ModuleSpec(module=Mine)"),
        f"{PASSES}, which `MLP.__init__` does not take, to which `Mine` hands it on",
    ),
    "a constructor that takes what it needs off": (
        "class Mine(MLP):\n    def __init__(self, config, **kwargs):\n        kwargs.pop('pg_collection')\n"
        "        kwargs.pop('is_mtp_layer')\n        super().__init__(config, **kwargs)\n"
        + SPEC.format("ModuleSpec(module=Mine)"),
        "",
    ),
    "a constructor that keeps the rest": (
        "class Mine(MLP):\n    def __init__(self, config, **kwargs):\n        super().__init__(config, None)\n"
        + SPEC.format("ModuleSpec(module=Mine)"),
        "",
    ),
    "a method that builds it": (SUBCLASS + SPEC.format("partial(Mine.as_mlp_submodule)"), ""),
    "put into a spec, in a spec of its own": (
        SUBCLASS + "\ndef change(spec):\n    spec.submodules.mlp = ModuleSpec(module=Mine)\n",
        ALL_THREE,
    ),
    "put into a spec by a variable, of no class of the slot": (
        TORCH + "\ndef change(spec):\n    mine = ModuleSpec(module=Mine)\n    spec.submodules.mlp = mine\n",
        ALL_THREE,
    ),
    "in a dataclass that derives from Megatron's": (
        SUBCLASS + OWN_FIELDS + "spec = OwnSubmodules(mlp=ModuleSpec(module=Mine))\n",
        ALL_THREE,
    ),
    "in a field that such a dataclass adds": (
        SUBCLASS + OWN_FIELDS + "spec = OwnSubmodules(second_mlp=ModuleSpec(module=Mine))\n",
        "",
    ),
    "in a field that a dataclass of another name adds": (
        SUBCLASS + OWN_FIELDS.replace("OwnSubmodules", "Own") + "spec = Own(second_mlp=ModuleSpec(module=Mine))\n",
        "",
    ),
    "a value": (SUBCLASS + "\nREGISTRY = {'mlp': Mine}\n", ALL_THREE),
    "chosen in the place of one": (TORCH + "\ndef made(ours):\n    return Mine if ours else MLP\n", ALL_THREE),
    "chosen in the place of one of another slot": (
        SUBCLASS + "\ndef made(ours):\n    return Mine if ours else SelfAttention\n",
        "",
    ),
    "put in the place of one of another slot": (
        SUBCLASS + "\ndef put(specs):\n    specs.TERowParallelLinear = Mine\n",
        "",
    ),
    "only asked for": (SUBCLASS + "\ndef is_mine(one: Mine):\n    return isinstance(one, Mine)\n", ""),
    "only built here": (SUBCLASS + "\ndef test(config):\n    return Mine(config)\n", ""),
    "in a slot of its own": (
        SUBCLASS + "\nclass OwnSubmodules:\n    mlp: type\n\nspec = OwnSubmodules(mlp=ModuleSpec(module=Mine))\n",
        "",
    ),
    "a layer in a block": (
        BLOCK,
        f"idle: {STACK}: TypeError where it is put in place of `TransformerLayer`",
    ),
}  # fmt: skip
FORWARD = """\
class Mine(MLP):
    def forward(self, hidden_states, per_token_scale=None):
        return super().forward(hidden_states, per_token_scale)
"""
PADDING = "`TransformerLayer._forward_mlp` passes `padding_mask`, which `Mine.forward` does not take"
LAYER = """\
class Layer(TransformerLayer):
    def _forward_mlp(self, hidden_states):
        return self.mlp(hidden_states)

"""
METHODS = {
    "in a slot": (FORWARD + SPEC.format("partial(Mine.as_mlp_submodule)") + "KEPT = Mine\n", f"raises: {PADDING}"),
    "nobody here has it": (FORWARD, f"idle: {PADDING}: TypeError where it is put in place of `MLP`"),
    "only built here": (FORWARD + "\ndef test(config):\n    return Mine(config, None)(1)\n", ""),
    "in a layer that calls it in its own way": (
        LAYER + FORWARD + "KEPT = Mine\n",
        f"idle: {PADDING}: TypeError where it is put in place of `MLP`",
    ),
}


def said(text: str, release: str) -> str:
    files = {"a.py": (HEAD + text).encode()}
    old, new = known.model(release), known.model("0.19.2")
    told = uses_of(list(files), Project(files.__contains__, files.__getitem__), old, new).affected
    lines = [one for one in told if "hybrid_block" not in one.text]
    return " | ".join(f"{one.kind}: {one.text}".replace(" of megatron-core 0.19.2", "") for one in lines)


@pytest.mark.parametrize("case", CASES)
def test_a_class_that_megatron_builds(case: str) -> None:
    text, expected = CASES[case]
    assert said(text, "0.16.0") == expected


@pytest.mark.parametrize("case", METHODS)
def test_a_method_that_megatron_calls(case: str) -> None:
    text, expected = METHODS[case]
    assert said(text, "0.15.0") == expected
