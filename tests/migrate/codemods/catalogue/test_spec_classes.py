"""Patches of classes that specs name become subclasses, named where the repository makes its specs: all or none."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

UNSAFE = Options(unsafe_fixes=True)
PATCH = """
from megatron.core.transformer.attention import SelfAttention

original = SelfAttention.forward


def scaled(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states * 2, *args, **kwargs)


def apply_patch():
    SelfAttention.forward = scaled
"""
MODEL = """
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

from pkg.patch import apply_patch

apply_patch()


def layer_spec(config):
    return get_gpt_layer_local_spec(normalization=config.normalization)
"""
AT_ONCE = PATCH.replace("def apply_patch():\n    SelfAttention", "SelfAttention")
WITHOUT = MODEL.replace("from pkg.patch import apply_patch\n\napply_patch()\n", "")
SPEC_FIRST = """
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec


def model(spec=get_gpt_layer_local_spec()):
    return spec
"""
LIST = """
from megatron.core.models.gpt import gpt_layer_specs as specs

MAKERS = [specs.get_gpt_decoder_layer_specs]
"""
GUARDED = PATCH.replace(
    "from megatron.core.transformer.attention import SelfAttention\n\noriginal = SelfAttention.forward\n",
    "try:\n    from megatron.core.transformer.attention import SelfAttention\n"
    "    original = SelfAttention.forward\nexcept ImportError:\n    original = None\n",
)
IMPORT = "from megatron.core.transformer.attention import SelfAttention\n"
HYBRID = "from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec\nprint(hybrid_stack_spec)\n"


def migrated(patch: str = PATCH, model: str = MODEL, options: Options = UNSAFE, **others: str) -> dict[str, str]:
    files = {"pkg/__init__.py": "", "pkg/patch.py": patch, "pkg/model.py": model}
    files |= {f"pkg/{name}.py": text for name, text in others.items()}
    done = migrate({path: text.encode() for path, text in files.items()}, options)
    return {path: text.decode() for path, text in done.files.items() if text.decode() != files[path]}


def why(patch: str = PATCH, model: str = MODEL, options: Options = UNSAFE, **others: str) -> str:
    """Why nothing is changed."""
    files = {"pkg/__init__.py": "", "pkg/patch.py": patch, "pkg/model.py": model}
    files |= {f"pkg/{name}.py": text for name, text in others.items()}
    done = migrate({path: text.encode() for path, text in files.items()}, options)
    assert not done.changed
    texts = [remark.text.split("\n")[0] for remark in done.plan.remarks if remark.text.startswith("Not rewritten")]
    return texts[0] if texts else ""


def test_a_patch_of_one_file_and_the_spec_of_another() -> None:
    done = migrated()
    assert done["pkg/patch.py"] == PATCH.replace(
        "def apply_patch():\n    SelfAttention.forward = scaled\n",
        "class PatchedSelfAttention(SelfAttention):\n"
        '    """Megatron\'s own with another `forward`, for specs to name."""\n\n'
        "    forward = scaled\n",
    )
    assert (
        done["pkg/model.py"]
        == """
from mcore_unpatch.compat import with_classes
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.attention import SelfAttention

from pkg.patch import PatchedSelfAttention


def layer_spec(config):
    return with_classes(
        get_gpt_layer_local_spec(normalization=config.normalization),
        {SelfAttention: PatchedSelfAttention},
        needed=False,
    )
"""
    )


def test_a_function_inside_the_installer_becomes_a_method() -> None:
    patch = '''
def apply_patch():
    """Scale."""
    from megatron.core.transformer.attention import SelfAttention

    original = SelfAttention.forward

    def forward(self, hidden_states, *args, **kwargs):
        out, bias = original(self, hidden_states, *args, **kwargs)
        return out * 2, bias  # twice

    SelfAttention.forward = forward
'''
    assert (
        migrated(patch)["pkg/patch.py"]
        == '''
from megatron.core.transformer.attention import SelfAttention


class PatchedSelfAttention(SelfAttention):
    """Megatron's own with another `forward`, for specs to name."""

    def forward(self, hidden_states, *args, **kwargs):
        out, bias = SelfAttention.forward(self, hidden_states, *args, **kwargs)
        return out * 2, bias  # twice
'''
    )


def test_specs_of_the_repository_name_the_subclass() -> None:
    model = """
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

import pkg.patch


def layer_spec(core, attention: SelfAttention = None):
    assert attention is None or isinstance(attention, SelfAttention)
    return ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            self_attention=ModuleSpec(
                module=SelfAttention,  # ours
                submodules=SelfAttentionSubmodules(core_attention=core),
            ),
        ),
    )
"""
    patch = PATCH.replace("def apply_patch():\n    SelfAttention", "SelfAttention")
    done = migrated(patch, model)
    assert done["pkg/model.py"] == model.replace("=SelfAttention,  # ours", "=PatchedSelfAttention,  # ours").replace(
        "import pkg.patch\n", "import pkg.patch\nfrom pkg.patch import PatchedSelfAttention\n"
    )
    assert done["pkg/patch.py"].endswith('for specs to name."""\n\n    forward = scaled\n')


def test_two_methods_and_two_classes_share_a_call() -> None:
    patch = """
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.dot_product_attention import DotProductAttention


def forward(self, *args, **kwargs): ...


def backward_dw(self): ...


def core(self, *args, **kwargs): ...


SelfAttention.forward = forward
setattr(SelfAttention, "backward_dw", backward_dw)
DotProductAttention.forward = core
"""
    model = MODEL.replace("from pkg.patch import apply_patch\n\napply_patch()\n", "import pkg.patch\n")
    done = migrated(patch, model)
    assert (
        "{SelfAttention: PatchedSelfAttention, DotProductAttention: PatchedDotProductAttention}" in done["pkg/model.py"]
    )
    assert "    forward = forward\n    backward_dw = backward_dw\n" in done["pkg/patch.py"]


def test_one_function_that_installs_two_classes() -> None:
    patch = PATCH.replace("\n\noriginal", "\nfrom megatron.core.transformer.moe.moe_layer import MoELayer\n\noriginal")
    done = migrated(patch + "    MoELayer.backward_dw = scaled\n")
    assert "apply_patch" not in done["pkg/patch.py"] + done["pkg/model.py"]
    assert "    backward_dw = scaled\n\n\nclass Patched" in done["pkg/patch.py"] or (
        "    forward = scaled\n\n\nclass Patched" in done["pkg/patch.py"]
    )
    assert "{SelfAttention: PatchedSelfAttention, MoELayer: PatchedMoELayer}" in done["pkg/model.py"]


def test_a_function_that_calls_two_that_install() -> None:
    first, second = PATCH.replace("apply_patch", "one"), PATCH.replace("apply_patch", "two")
    second = second.replace("attention import SelfAttention", "moe.moe_layer import MoELayer")
    second = second.replace("SelfAttention", "MoELayer")
    every = (
        "from .first import one\nfrom .second import two\n\n\ndef apply_patch():\n    one()\n    two()\n\n\nNAME = 1\n"
    )
    done = migrated(every, first=first, second=second)
    assert done["pkg/patch.py"] == "NAME = 1\n"
    assert (
        "from pkg.first import PatchedSelfAttention\nfrom pkg.second import PatchedMoELayer\n" in done["pkg/model.py"]
    )


def test_an_installer_with_more_to_do_stays() -> None:
    patch = PATCH + "    print('ready')\n"
    done = migrated(patch)
    assert done["pkg/patch.py"].endswith("    forward = scaled\n\n\ndef apply_patch():\n    print('ready')\n")
    assert "\napply_patch()\n" in done["pkg/model.py"]


def test_a_subclass_under_the_name_of_megatrons() -> None:
    patch = """
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.transformer.attention import SelfAttention


class MySelfAttention(SelfAttention):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


gpt_layer_specs.SelfAttention = MySelfAttention
"""
    model = MODEL.replace("from pkg.patch import apply_patch\n\napply_patch()\n", "import pkg.patch\n")
    done = migrated(patch, model)
    assert done["pkg/patch.py"] == patch.replace("from megatron.core.models.gpt import gpt_layer_specs\n", "").replace(
        "\n\ngpt_layer_specs.SelfAttention = MySelfAttention\n", ""
    )
    assert "{SelfAttention: MySelfAttention}" in done["pkg/model.py"]


def test_a_subclass_of_another_file_is_not_said_to_be_of_no_use() -> None:
    own = "from megatron.core.transformer.attention import SelfAttention\n\n\nclass Mine(SelfAttention):\n    pass\n"
    patch = "from megatron.core.models.gpt import gpt_layer_specs\n\nfrom .own import Mine\n\n\n"
    patch += "def apply_patch():\n    gpt_layer_specs.SelfAttention = Mine\n"
    files = {"pkg/__init__.py": "", "pkg/own.py": own, "pkg/patch.py": patch, "pkg/model.py": MODEL}
    done = migrate({path: text.encode() for path, text in files.items()}, UNSAFE)
    assert b"from pkg.own import Mine\n" in done.files["pkg/model.py"]
    assert not [remark.text for remark in done.plan.remarks if "Mine" in remark.text]


def test_a_comment_stays_behind_the_method() -> None:
    done = migrated(AT_ONCE.replace("= scaled", "= scaled  # twice"), WITHOUT + "\n\nimport pkg.patch\n")
    assert done["pkg/patch.py"].endswith("    forward = scaled  # twice\n")


def test_older_releases_without_the_hook() -> None:
    older = Options(unsafe_fixes=True, pinned=lambda _: ((0, 12), (0, 14)))
    assert set(migrated(options=older)) == {"pkg/patch.py", "pkg/model.py"}


@pytest.mark.parametrize(
    ("reason", "patch", "model", "others"),
    [
        ("not seen to make a spec", PATCH, "from pkg.patch import apply_patch\n\napply_patch()\n", {}),
        ("nothing is seen to call", PATCH, MODEL.replace("apply_patch()\n", ""), {}),
        ("in any case", PATCH, MODEL.replace("\napply_patch()", "\nif FAST:\n    apply_patch()"), {}),
        (
            "does not patch in any case",
            PATCH.replace("    SelfAttention.forward = scaled", "    if FAST:\n        SelfAttention.forward = scaled"),
            MODEL,
            {},
        ),
        ("without calling it", PATCH, MODEL + "\n\nMAKERS = {'local': get_gpt_layer_local_spec}\n", {}),
        ("imports `mbridge.AutoBridge`", PATCH, MODEL, {"bridge": "from mbridge import AutoBridge\n"}),
        ("a spec that may name it", PATCH, MODEL, {"hybrid": HYBRID}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "class Mine(SelfAttention): ...\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(x):\n    return type(x) is SelfAttention\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "NAMES = {SelfAttention: 1}\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(c):\n    return SelfAttention(c)\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(x):\n    return SelfAttention.forward(x, 1)\n"}),
        ("in a way that", PATCH + "\n\ndef other(x):\n    return SelfAttention.forward(x, 1)\n", MODEL, {}),
        ("in a way that", PATCH + "\n\nnow = SelfAttention.forward\n", MODEL, {}),
        ("before the class is there", SPEC_FIRST + AT_ONCE, "", {}),
        ("nothing is seen to import", AT_ONCE, WITHOUT, {}),
        ("does not import pkg/patch.py in any case", AT_ONCE, WITHOUT + "\n\nif FAST:\n    import pkg.patch\n", {}),
        ("`with_classes` is taken", PATCH, MODEL + "\n\ndef with_classes(): ...\n", {}),
        ("`SelfAttention` is taken", PATCH, MODEL + "\n\ndef f(SelfAttention): ...\n", {}),
        ("without calling it", PATCH, MODEL, {"list": LIST}),
        ("is not imported in any case", GUARDED, MODEL, {}),
        ("a megatron.core of its own", PATCH, MODEL, {"megatron/core/utils": ""}),
        ("which would have to import it", PATCH + "\n\ndef late():\n    import pkg.model\n", MODEL, {}),
        ("is taken", PATCH + "\n\nPatchedSelfAttention = 1\n", MODEL, {}),
        ("uses `factor` of `apply_patch`", PATCH.replace("apply_patch():", "apply_patch(factor):").replace(
            "= scaled", "= partialmethod(scaled, factor)"), MODEL.replace("apply_patch()", "apply_patch(2)"), {}),
        ("patches `get_gpt_layer_local_spec` too", PATCH, MODEL, {"m": (
            "from megatron.core.models.gpt import gpt_layer_specs as g\ng.get_gpt_layer_local_spec = print\n")}),
        ("where pkg/model.py may lead", PATCH.replace("attention import SelfAttention",
            "transformer_layer import TransformerLayer").replace("SelfAttention", "TransformerLayer"), MODEL +
            "\n\ndef mtp(config, spec):\n    return get_gpt_mtp_block_spec(config, spec)\n", {}),
        ("build it by name", PATCH.replace("attention import SelfAttention", "mlp import MLP").replace(
            "SelfAttention", "MLP"), MODEL, {}),
    ],
)  # fmt: skip
def test_left(reason: str, patch: str, model: str, others: dict[str, str]) -> None:
    assert reason in why(patch, model, **others)


def test_a_patch_that_is_taken_back_is_left() -> None:
    assert why(PATCH + "\n\ndef undo():\n    SelfAttention.forward = original\n")


def test_moe_layers_are_compared_up_to_0_17() -> None:
    patch = PATCH.replace("transformer.attention import SelfAttention", "transformer.moe.moe_layer import MoELayer")
    patch = patch.replace("SelfAttention", "MoELayer")
    assert "compares `MoELayer`" in why(patch, options=Options(unsafe_fixes=True, pinned=lambda _: ((0, 16), (0, 19))))
    assert set(migrated(patch)) == {"pkg/patch.py", "pkg/model.py"}
