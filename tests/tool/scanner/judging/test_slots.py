"""What a ModuleSpec names is read from Megatron's own specs, and where this repository makes its specs is said."""

import ast
import importlib.util
from pathlib import Path

import pytest
from checking import CORE, found_in

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.build import build
from mcore_unpatch.library.model import CALLED, EXACT, SLOT, Library, Model
from mcore_unpatch.megatron import api, known, slots
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS
from mcore_unpatch.megatron.versions import parse_version

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


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("transformer.attention.SelfAttention", ("SelfAttention",)),
        ("transformer.multi_latent_attention.MultiLatentAttention", ("MLASelfAttention", "FusedMLASelfAttention")),
        ("transformer.attention.Attention", ()),  # too general
        ("extensions.transformer_engine.TELMHeadColumnParallelLinear", ()),  # the head, though it ends in Linear
        ("transformer.transformer_block.TransformerBlock", ()),
    ],
)
def test_classes_that_specs_name(name: str, classes: tuple[str, ...]) -> None:
    assert api.lookup(f"{CORE}.{name}") is not None
    assert slots.named(f"{CORE}.{name}") == classes
    older = slots.named(f"{CORE}.{name}", (known.newest((0, 12)),))
    assert older == tuple(one for one in classes if not one.startswith("Fused"))


PATCH = """
from megatron.core.{module} import {name}
def new(self, *args): ...
{name}.forward = new
"""


@pytest.mark.parametrize(
    ("module", "name", "steps"),
    [
        (
            "transformer.attention",
            "SelfAttention",
            (
                "Write a subclass of `SelfAttention` with `forward` overridden.",
                "Name it in your `ModuleSpec` (`self_attention` of `TransformerLayerSubmodules`), and remove line 4.",
            ),
        ),
        (
            "transformer.multi_latent_attention",
            "MultiLatentAttention",
            (
                (
                    "Write a subclass of `MLASelfAttention` and of `FusedMLASelfAttention`, as far as your specs name "
                    "them, with `forward` overridden."
                ),
                "Name it in your `ModuleSpec` (`self_attention` of `TransformerLayerSubmodules`), and remove line 4.",
            ),
        ),
        (
            "extensions.transformer_engine",
            "TEDotProductAttention",
            (
                "Write a subclass of `TEDotProductAttention` with `forward` overridden.",
                (
                    "Name it in your `ModuleSpec` (such as `core_attention` of `SelfAttentionSubmodules`; "
                    "`core_attention` of `MLASelfAttentionSubmodules`), and remove line 4."
                ),
            ),
        ),
        (
            "transformer.transformer_layer",
            "TransformerLayer",
            (
                (
                    "Write a subclass of `TransformerLayer` (where your specs name `MLPLayer` or `MoETransformerLayer`,"
                    " one of that and of yours, in this order) with `forward` overridden."
                ),
                (
                    "Name it in your `ModuleSpec` (`module` of the layer's `ModuleSpec`; `attention_layer`, "
                    "`dsa_layer` and 4 more of `HybridStackSubmodules`), and remove line 4."
                    f"{COMPARED_IN_SPECS['TransformerLayer'][-1]}"
                ),
            ),
        ),
    ],
)
def test_steps_name_the_class_and_its_slot(module: str, name: str, steps: tuple[str, ...]) -> None:
    [finding] = found_in(PATCH.format(module=module, name=name))
    assert finding.steps == steps


@pytest.mark.parametrize(("release", "said"), [("0.12", ""), ("0.17", "`is_mtp_layer`"), ("0.18", "")])
def test_what_a_release_compares_is_said_of_that_release_alone(release: str, said: str) -> None:
    [finding] = found_in(
        PATCH.format(module="transformer.moe.moe_layer", name="MoELayer"), target=parse_version(release)
    )
    [step] = [one for one in finding.steps if "remove line 4" in one]
    assert said in step
    assert step.endswith("remove line 4.") == (not said)


def test_a_subclass_that_is_named_for_a_while_asks_a_flag() -> None:
    text = (
        "from megatron.core.transformer.attention import SelfAttention\ndef new(self): ...\ndef run():\n"
        "    old = SelfAttention.forward\n    SelfAttention.forward = new\n    try: go()\n"
        "    finally: SelfAttention.forward = old\n"
    )
    [finding] = found_in(text)
    assert finding.steps[1].startswith("Let it do this only while a flag of yours is set")


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
MADE = (
    "Megatron makes specs that can name it here: pkg/near.py:4 (`get_gpt_layer_local_spec`), pkg/provider.py:3 "
    "(`get_gpt_layer_local_spec`)."
)


def test_where_specs_name_the_class_is_a_step_more() -> None:
    [finding] = found_in(MAKERS, fixes=True)
    named = "Specs name it here: a.py:6 (`SelfAttention`), b.py:4 (`SelfAttention`)."
    assert finding.steps[-1] == f"{named} {MADE} {ELSEWHERE}"
    more = {path.replace("b.py", name): text for name in ("b.py", "c.py") for path, text in MAKERS.items()}
    assert (
        "a.py:6 (`SelfAttention`), b.py:4 (`SelfAttention`) and in other files."
        in found_in(more, fixes=True)[0].steps[-1]
    )


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("layer.self_attention.__class__ is SelfAttention", True),
        ("type(layer) not in (attention.SelfAttention, str)", True),
        ("isinstance(layer, SelfAttention)", False),
        ("type(SelfAttention) is type", False),
    ],
)
def test_code_that_asks_for_the_very_class_is_told(test: str, told: bool) -> None:
    asking = f"from megatron.core.transformer.attention import SelfAttention\ndef asks(layer):\n    return {test}\n"
    [finding] = found_in({"pkg/patches.py": MAKERS["pkg/patches.py"], "asks.py": asking}, fixes=True)
    fails = " A subclass fails the test for this very class here: asks.py:3 (`SelfAttention`)."
    assert finding.steps[-1].endswith(fails if told else ELSEWHERE)


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


@pytest.mark.parametrize("other", ["mine.attention", "pkg.attention"])
def test_another_class_of_that_name_is_not_the_one_that_is_patched(other: str) -> None:
    source = "from megatron.core.transformer.spec_utils import ModuleSpec\ndef spec(fast):\n    if fast:\n"
    source += f"        from {other} import SelfAttention\n        return ModuleSpec(module=SelfAttention)\n"
    source += "    from megatron.core.transformer.attention import SelfAttention\n"
    source += "    return ModuleSpec(module=SelfAttention)\n"
    files = {"pkg/patches.py": MAKERS["pkg/patches.py"], "a.py": source, "pkg/__init__.py": ""}
    [finding] = found_in({**files, "pkg/attention.py": "class SelfAttention:\n    pass\n"}, fixes=True)
    assert finding.steps[-1] == f"Specs name it here: a.py:7 (`SelfAttention`). {ELSEWHERE}"


def test_a_function_that_makes_specs_is_called_and_not_named() -> None:
    source = "from megatron.core.models.gpt import gpt_layer_specs\ngpt_layer_specs.get_gpt_layer_local_spec = print\n"
    [finding] = found_in({**MAKERS, "pkg/patches.py": source}, fixes=True)
    assert finding.steps[-1] == f"{MADE} {ELSEWHERE}"


GPT = "megatron.core.models.gpt.gpt_layer_specs"
FUSED_MLA = ("transformer.multi_latent_attention", "FusedMLASelfAttention")
TE_LINEAR = ("extensions.transformer_engine", "TERowParallelLinear")


@pytest.mark.parametrize(
    ("call", "patched", "told"),
    [
        ("get_moe_module_spec()", ("transformer.transformer_layer", "TransformerLayer"), False),
        ("get_mlp_module_spec()", ("transformer.attention", "SelfAttention"), False),
        ("_get_mlp_module_spec(num_experts=8)", ("extensions.transformer_engine", "TERowParallelGroupedLinear"), True),
        ("get_mlp_module_spec(num_experts=config.num_moe_experts)", ("transformer.moe.moe_layer", "MoELayer"), True),
        ("get_mlp_module_spec()", ("transformer.moe.moe_layer", "MoELayer"), False),
        ("get_mlp_module_spec(use_te=use_te)", TE_LINEAR, True),
        ("get_mlp_module_spec(use_te=False)", TE_LINEAR, False),
        ("get_mlp_module_spec(False)", TE_LINEAR, False),
        ("get_mlp_module_spec(use_te=False)", ("transformer.mlp", "MLP"), True),
        ("get_gpt_decoder_block_spec(config, True)", FUSED_MLA, True),
        ("get_gpt_decoder_block_spec(config, use_transformer_engine=False)", FUSED_MLA, False),
        ("get_gpt_layer_local_spec()", TE_LINEAR, False),
        ("get_gpt_layer_local_spec(num_experts=None)", ("transformer.moe.moe_layer", "MoELayer"), False),
        ("get_gpt_layer_local_spec()", ("transformer.moe.moe_layer", "MoELayer"), False),
        ("get_gpt_layer_local_spec(*config)", ("transformer.moe.moe_layer", "MoELayer"), True),
        ("get_gpt_layer_local_spec(config.num_moe_experts)", ("transformer.moe.moe_layer", "MoELayer"), True),
        ("get_gpt_layer_local_spec()", ("ssm.mamba_layer", "MambaLayer"), False),
        ("get_gpt_layer_with_inference_spec()", ("ssm.gated_delta_net", "GatedDeltaNet"), False),
        ("get_gpt_layer_with_transformer_engine_submodules()", TE_LINEAR, True),
    ],
)
def test_only_what_puts_the_class_into_specs_is_listed(call: str, patched: tuple[str, str], told: bool) -> None:
    module, name = patched
    function = call.partition("(")[0]
    maker = f"from {GPT} import {function}\ndef make(config, use_te):\n    return {call}\n"
    [finding] = found_in({"patches.py": PATCH.format(module=module, name=name), "a.py": maker}, fixes=True)
    assert (f"a.py:3 (`{function}`)" in finding.steps[-1]) == told


def test_without_specs_that_is_said_and_of_other_patches_nothing() -> None:
    [alone] = found_in({name: MAKERS[name] for name in ("pkg/patches.py", "other.py")}, fixes=True)
    assert alone.steps[-1] == f"This repository is not seen to make such a spec. {ELSEWHERE}"
    other = "from megatron.core.models.gpt import GPTModel\ndef new(self): ...\nGPTModel.set_input_tensor = new\n"
    found = found_in({**MAKERS, "pkg/patches.py": other}, fixes=True)
    assert all("elsewhere" not in step for finding in found for step in finding.steps)


BUILDERS = {
    "pkg/build.py": "from megatron.core.models.gpt import GPTModel as Model\ndef build():\n    return Model(1)\n",
    "pkg/other.py": "import megatron.core\nclass GPTModel: ...\nmodel = GPTModel()\n",
    "tests/test_build.py": "from megatron.core.models.gpt import GPTModel\nGPTModel(1)\n",
}


@pytest.mark.parametrize(
    "patch",
    [
        "from megatron.core.models.gpt import GPTModel\nGPTModel.set_input_tensor = new\n",
        "from megatron.core.models.gpt import gpt_model\ngpt_model.GPTModel = Mine\n",
    ],
)
def test_where_the_repository_builds_what_only_its_builder_can_change(patch: str) -> None:
    patch = f"class Mine: ...\ndef new(self): ...\n{patch}"
    [finding] = found_in({**BUILDERS, "patch.py": patch}, fixes=True)
    assert finding.evidence.endswith(" This repository builds it here: pkg/build.py:3 (`GPTModel`).")
    [alone] = found_in({"patch.py": patch}, fixes=True)
    assert "This repository builds" not in alone.evidence


DDP = """from megatron.core import distributed
from megatron.core.distributed import DistributedDataParallel as DDP
def get(x):
    {}
"""
REGISTERED = "registry.register_patch('megatron.{}', new)\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("DP = DDP\n    return wrap(x, DP=DP)", " here: a.py:4 (`DP = DDP`)."),
        ("DP = DDP\n    return DP(x)", " here: a.py:4 (`DP = DDP`)."),
        ("DP = DDP\n    return isinstance(x, DP)", ""),
        ("DDP = make()\n    DP = DDP\n    return DP(x)", ""),
        ("old = distributed.DistributedDataParallel\n    new(x, old=old)", ""),  # a backup
    ],
)
def test_a_class_that_is_taken_by_another_name_and_handed_on(body: str, told: str) -> None:
    patch = REGISTERED.format("core.distributed.distributed_data_parallel.DistributedDataParallel.no_sync")
    [finding] = found_in({"patch.py": patch, "a.py": DDP.format(body)}, fixes=True)
    assert finding.evidence.partition("This repository builds it")[2] == told


def test_a_name_that_a_module_has_of_its_own_is_built_by_nobody_else() -> None:
    source = "from megatron.core.transformer.torch_norm import WrappedTorchNorm\nnorm = WrappedTorchNorm(1)\n"
    files = {"a.py": source, "requirements.txt": "megatron-core==0.12.1\n"}
    [finding] = found_in(
        {"p.py": REGISTERED.format("core.transformer.multi_token_prediction.LNImpl"), **files}, fixes=True
    )
    assert "This repository" not in finding.evidence


def test_a_class_that_no_wheel_holds_is_built_too() -> None:
    patch = REGISTERED.format("legacy.model.rms_norm.RMSNorm.__init__")
    source = "from megatron.legacy.model.rms_norm import RMSNorm\n{}\n"
    [built], [asked] = (
        found_in({"patch.py": patch, "a.py": source.format(line)}, fixes=True)
        for line in ("norm = RMSNorm(1)", "isinstance(1, RMSNorm)")
    )
    assert built.evidence.endswith(" This repository builds it here: a.py:2 (`RMSNorm`).")
    assert "This repository" not in asked.evidence


def test_calls_of_the_repository_are_told_where_megatron_may_do_without() -> None:
    """Not those of what another module has of it."""
    calls = "from megatron.training import arguments, training\narguments.parse_args()\ntraining.train_step()\n"
    pin = {"a.py": calls, "requirements.txt": "megatron-core==0.17.0\n"}
    [parse], [copy], [step] = (
        found_in({"patch.py": REGISTERED.format(f"training.{name}"), **pin}, fixes=True)
        for name in ("arguments.parse_args", "initialize.parse_args", "training.train_step")
    )
    assert parse.evidence.endswith(" This repository calls it here: a.py:2 (`parse_args`).")
    assert "This repository" not in copy.evidence + step.evidence


def test_where_a_config_is_built_that_is_to_be_of_another_class() -> None:
    patch = "from megatron.core.transformer import transformer_config\nclass Mine: ...\n"
    patch += "transformer_config.TransformerConfig = Mine\n"
    build = "from megatron.core.transformer import TransformerConfig\nconfig = TransformerConfig(1)\n"
    bridge = " Keep the patch for configs that another package builds, such as a bridge."
    [alone], [built] = (found_in({"patch.py": patch, **more}, fixes=True) for more in ({}, {"build.py": build}))
    assert alone.steps[-1] == f"This repository is not seen to build one.{bridge}"
    assert built.steps[-1] == f"This repository builds it here: build.py:2 (`TransformerConfig`).{bridge}"


@pytest.mark.parametrize(
    ("name", "caller", "idle"),
    [
        ("run.py", "", True),
        ("run.py", "import a\na.install()\n", False),
        ("run.py", "go(a, 'install')\n", False),
        ("run.sh", "python -c 'import a; a.install()'\n", False),
    ],
)
def test_a_patch_in_a_function_that_nothing_calls_is_said_to_be_so(name: str, caller: str, idle: bool) -> None:
    patch = "from megatron.core.models.gpt import GPTModel\ndef install():\n    GPTModel.set_input_tensor = print\n"
    [finding] = found_in({"a.py": patch, name: caller}, fixes=True)
    said = "Nothing in this repository calls `install`, which it stands in."
    assert finding.evidence.endswith(said) == idle


PARTS = """
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.transformer_layer import TransformerLayer
def patch(layer: TransformerLayer, attention: SelfAttention, wrap):
    {}
"""


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (
            "layer.mlp = MyMlp(layer.config)",
            "Name a class that makes `MyMlp(layer.config)` as `mlp` of `TransformerLay",
        ),
        ("attention.linear_qkv = Wide(2)", "Name a class that makes `Wide(2)` as `linear_qkv` of `SelfAttentionSubmo"),
        ("setattr(layer, 'input_layernorm', Id())", "Name a class that makes `Id()` as `input_layernorm` of `Transfor"),
        ("layer.mlp = Wide(layer.mlp)", None),
        ("old = layer.mlp\n    layer.mlp = Wide(old)", None),
        ("old = getattr(layer, 'mlp')\n    setattr(layer, 'mlp', Wide(old))", None),
        ("layer.mlp = LoraLinear(2)", None),
    ],
)
def test_a_part_of_a_layer_is_named_by_its_spec_unless_it_is_made_from_the_old_one(line: str, step: str | None) -> None:
    [finding] = found_in(PARTS.format(line))
    assert (finding.verdict, finding.rule) == (("steps", "MCU402") if step else ("keep", finding.rule))
    assert not step or finding.steps[0].startswith(step)
    assert (
        not step or "sets them in its `__init__`" in finding.steps[1]
    )  # what it is built with is not what a spec gives


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


def test_what_no_spec_reaches_is_said() -> None:
    [finding] = found_in(PATCH.format(module="extensions.transformer_engine", name="TELinear"))
    latent = "`MoELayer` builds it by name, out of reach of a spec: keep the patch for that."
    assert f"{latent} Since 0.14 MLA takes Megatron's own classes alone" in finding.steps[1]


def test_a_class_that_derives_by_its_second_base_passes_the_tests() -> None:
    source = """
        from megatron.core.transformer.moe import moe_layer
        from megatron.core.transformer.moe.moe_layer import BaseMoELayer, MoELayer
        class Overlapped(BaseMoELayer): ...
        class Ours(Overlapped, {base}): ...
        moe_layer.MoELayer = Ours
        """
    [derived] = found_in(source.format(base="MoELayer"))
    [other] = found_in(source.format(base="object"))
    assert "yours is none" not in str(derived.steps)
    assert "yours is none" in str(other.steps)


def test_a_method_that_is_replaced_by_its_dotted_name() -> None:
    [finding] = found_in("registry.register_patch('megatron.core.transformer.moe.moe_layer.MoELayer.forward', new)\n")
    assert finding.steps[0] == "Write a subclass of `MoELayer` with `forward` overridden."


def test_a_method_that_no_judged_release_has_is_not_overridden() -> None:
    """It is added, as the message says, and who calls it is the repository."""
    added, other = (
        found_in(f"registry.register_patch('megatron.core.transformer.moe.moe_layer.MoELayer.{name}', new)\n")[0]
        for name in ("get_token_dispatcher", "forward")
    )
    assert (added.verdict, added.message.split()[0]) == ("keep", "adds")
    assert (other.verdict, other.message.split()[0]) == ("steps", "replaces")


def on(release: str, source: str) -> Finding:
    """What is found in a repository that runs one release."""
    [finding] = found_in({"a.py": source, "requirements.txt": f"megatron-core=={release}\n"})
    return finding


TE = "from megatron.core.extensions import transformer_engine\nclass Mine: ...\ntransformer_engine.{} = Mine\n"


def test_only_the_judged_releases_are_asked_for_an_instance() -> None:
    """0.12 never asks whether a module is a `TERowParallelLinear`; later releases do."""
    source = TE.format("TERowParallelLinear")
    assert "isinstance" not in str(on("0.12.1", source).steps)
    assert "isinstance" in str(on("0.19.2", source).steps)


def test_a_class_that_is_only_compared_needs_no_subclass() -> None:
    """LLaVA asks whether a spec names just `TEDotProductAttention`, which no subclass is."""
    assert "isinstance" not in str(on("0.19.2", TE.format("TEDotProductAttention")).steps)


def test_what_no_spec_reaches_is_of_the_judged_releases() -> None:
    source = TE.format("TENorm")
    assert "`MambaStack` builds it by name, out of reach of a spec" in str(on("0.12.1", source).steps)
    assert ", `_TENormWithResidual` and `HybridStack` build it by name" in str(on("0.19.2", source).steps)


def test_who_builds_a_class_of_specs_by_name_is_said() -> None:
    mlp, moe = (
        PATCH.format(module=f"transformer.{one}", name=two)
        for one, two in (("mlp", "MLP"), ("moe.moe_layer", "MoELayer"))
    )
    said = "`SequentialMLP` and `MultimodalProjector` build it by name, out of reach of a spec"
    assert said in str(found_in(mlp)[0].steps)
    assert "out of reach" not in str(found_in(moe)[0].steps)


@pytest.mark.parametrize("release", known.minors(), ids=lambda release: release.label)
def test_all_who_build_a_class_by_name_are_named(release: Model) -> None:
    """As many as are counted, but for functions that stand in specs, which name another there."""
    for short in slots.table((release,)):
        for name in (one for one in api.classes(short) if one in release.facts):
            counted = sum(one.users for one in release.uses(name) if one.how in (CALLED, EXACT))
            told = set(slots._builders(name, release))
            assert len(told) == (0 if short.endswith("SharedExpertMLP") else counted), (name, told)


def test_a_class_that_is_the_outermost_module_of_a_spec() -> None:
    stack, dead = (
        on("0.12.1", PATCH.format(module=module, name=name))
        for module, name in (("ssm.mamba_block", "MambaStack"), ("transformer.transformer_block", "TransformerBlock"))
    )
    assert (stack.verdict, dead.verdict) == ("steps", "keep")
    assert stack.steps[1] == "Name it in your `ModuleSpec` (`module`), and remove line 4."


def test_a_class_that_the_judged_module_no_longer_imports_has_no_answer_in_specs() -> None:
    source = (
        "from megatron.core.models.gpt import moe_module_specs\nclass Mine: ...\nmoe_module_specs.GroupedMLP = Mine\n"
    )
    gone = on("0.16.1", source)
    assert (gone.verdict, gone.steps) == ("steps", ())
    assert gone.evidence == (
        "`moe_module_specs` has no such name after megatron-core 0.12.3, so nothing of Megatron reads it there: "
        "patch what reads it now (`transformer_engine_spec_provider`, `backends`), or delete this line, unless other "
        "code imports the name from there."
    )
    assert on("0.12.1", source).steps[0].startswith("Name `Mine` in your `ModuleSpec`")


def test_another_base_reaches_none_of_the_classes_that_specs_name() -> None:
    """Specs name the column and the row parallel class that derive from it."""
    line = "manager.register_patch('megatron.core.extensions.transformer_engine.{}', Mine)\n"
    base, named = (
        found_in(f"class Mine: ...\n{line.format(one)}", target=(0, 12))[0]
        for one in ("TEGroupedLinear", "TERowParallelGroupedLinear")
    )
    settled = "derive from it, which is settled when they are imported: the patch does not reach them"
    assert (base.verdict, settled in base.evidence) == ("keep", True)
    assert (named.verdict, settled in named.evidence) == ("steps", False)
