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
INNER = '''
def apply_patch():
    """Scale."""
    from megatron.core.transformer.attention import SelfAttention

    original = SelfAttention.forward

    def forward(self, hidden_states, *args, **kwargs):
        out, bias = original(self, hidden_states, *args, **kwargs)
        return out * 2, bias

    SelfAttention.forward = forward
'''
SWAP = """
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.transformer.attention import SelfAttention


class Mine(SelfAttention): ...


gpt_layer_specs.SelfAttention = Mine
"""
HYBRID_BY_MODULE = "import megatron.core.models.hybrid.hybrid_layer_specs as layers\nprint(layers.hybrid_stack_spec)\n"
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
    assert "def core(self, *args, **kwargs): ...\n\n\nclass PatchedSelf" in done["pkg/patch.py"]
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


@pytest.mark.parametrize("indent", ["\t", "  "])
def test_a_method_stands_as_deep_as_the_file_has_it(indent: str) -> None:
    done = migrated(INNER.replace("    ", indent))["pkg/patch.py"]
    method = (
        f"{indent}def forward(self, hidden_states, *args, **kwargs):\n{indent * 2}out, bias = SelfAttention.forward("
    )
    assert method in done
    assert f'\n{indent}"""Megatron' in done


def test_comments_and_texts_of_several_lines_go_with_a_method() -> None:
    patch = INNER.replace("    def forward", "    # Twice.\n    def forward")
    patch = patch.replace("        out, bias", '        """Scale.\n\n        By two.\n        """\n        out, bias')
    done = migrated(patch)["pkg/patch.py"]
    assert "    # Twice.\n    def forward" in done
    assert '"""Scale.\n\n        By two.\n        """\n' in done


def test_comments_of_a_statement_stay_unless_they_are_for_checkers() -> None:
    told = PATCH.replace(
        "    SelfAttention.forward = scaled", "    # Why.\n    SelfAttention.forward = scaled  # twice"
    )
    assert "    # Why.\n    forward = scaled  # twice\n" in migrated(told)["pkg/patch.py"]
    assert migrated(PATCH.replace("= scaled", "= scaled  # type: ignore"))["pkg/patch.py"].endswith("= scaled\n")
    assert (
        "ignore"
        not in migrated(AT_ONCE.replace("= scaled", "= scaled  # type: ignore"), WITHOUT + "import pkg.patch\n")[
            "pkg/patch.py"
        ]
    )


def test_a_method_of_another_module() -> None:
    patch = "from megatron.core.transformer.attention import SelfAttention\n\nfrom pkg import other\n\n\n"
    patch += "def apply_patch():\n    def forward(self): ...\n\n    SelfAttention.forward = other.forward\n"
    done = migrated(patch, other="def forward(self, *args, **kwargs): ...\n")
    assert "    forward = other.forward\n" in done["pkg/patch.py"]


def test_a_class_stands_below_what_it_names() -> None:
    patch = PATCH.replace("SelfAttention.forward = scaled", "SelfAttention.forward = again")
    done = migrated(patch + "\n\nagain = scaled\n")["pkg/patch.py"]
    assert done.index("again = scaled") < done.index("forward = again")


def test_a_function_that_runs_once_and_one_whose_answer_is_kept() -> None:
    once = "_done = False\n\n\ndef apply_patch():\n    global _done\n    if _done:\n        return\n    _done = True\n"
    assert "global" not in migrated(PATCH.replace("def apply_patch():\n", once))["pkg/patch.py"]
    model = MODEL.replace("apply_patch()\n\n", "ok = apply_patch()\n\n")
    assert "ok = apply_patch()" in migrated(PATCH + "    return True\n", model)["pkg/model.py"]


def test_a_class_never_stands_under_a_guard() -> None:
    guarded = "try:\n    from megatron.core import parallel_state\nexcept ImportError:\n    parallel_state = None\n"
    assert "imports Megatron under a guard" in why(guarded + INNER)
    assert "pkg/cli.py imports pkg/patch.py, and may do without" in why(INNER, cli="from pkg.patch import helper\n")


def test_a_name_in_a_text_is_a_use() -> None:
    assert "in a way that" in why(own="def f(x):\n    return type(x).__name__ == 'SelfAttention'\n")
    assert "not as Megatron's own" in why(
        own="def f(module):\n    return getattr(module, 'get_gpt_layer_local_spec')()\n"
    )


def test_a_global_that_others_read_is_still_set() -> None:
    patch = PATCH.replace("original = SelfAttention.forward\n", "original = None\n").replace(
        "def apply_patch():\n", "def apply_patch():\n    global original\n    original = SelfAttention.forward\n"
    )
    done = migrated(patch)
    assert "    global original\n    original = SelfAttention.forward\n" in done["pkg/patch.py"]
    assert "\napply_patch()\n" in done["pkg/model.py"]


@pytest.mark.parametrize("package", [True, False])
def test_a_file_imports_the_class_as_it_imports_others_of_its_package(package: bool) -> None:
    files = {"pkg/patch.py": PATCH, "pkg/model.py": MODEL.replace("from pkg.patch", "from .patch")}
    files |= {"pkg/__init__.py": ""} if package else {}
    done = migrate({path: text.encode() for path, text in files.items()}, UNSAFE)
    assert b"\n\nfrom .patch import PatchedSelfAttention\n" in done.files["pkg/model.py"]


def test_an_annotation_as_a_text_is_no_use() -> None:
    own = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    " + IMPORT
    assert migrated(own=own + "\n\ndef f(x: 'SelfAttention'): ...\n")


def test_the_name_in_a_module_that_others_read_is_left() -> None:
    model = WITHOUT + "\n\nimport pkg.patch\n"
    assert migrated(SWAP, model)
    own = "from megatron.core.models.gpt.gpt_layer_specs import SelfAttention\n\nprint(SelfAttention)\n"
    assert "asks `megatron.core.models.gpt.gpt_layer_specs` for `SelfAttention`" in why(SWAP, model, own=own)
    again = SWAP.replace("= Mine\n", "= own.Mine\n").replace("\n\n\nclass", "\nfrom pkg import own\n\n\nclass")
    assert "`own.Mine` is no subclass" in why(again, model, own="class Mine: ...\n")
    assert "`Mine` is no subclass" in why(SWAP.replace("\n\n\ngpt", "\n\n\nMine = f(Mine)\ngpt"), model)


@pytest.mark.parametrize("init", ["from pkg.model import layer_spec\n", "import pkg.other\n"])
def test_a_package_whose_init_imports_the_model_is_left(init: str) -> None:
    files = {"pkg/__init__.py": "", "pkg/patches/__init__.py": init, "pkg/patches/attn.py": PATCH}
    files |= {"pkg/other.py": "import pkg.model\n", "pkg/model.py": WITHOUT}
    files |= {"pkg/train.py": "from pkg.patches.attn import apply_patch\n\napply_patch()\n"}
    assert not migrate({path: text.encode() for path, text in files.items()}, UNSAFE).changed


def test_a_module_that_acts_when_it_is_imported_is_not_imported_anew() -> None:
    train = "from pkg.patch import apply_patch\n\napply_patch()\n"
    assert "pkg/model.py" in migrated(PATCH, WITHOUT, train=train)
    assert "where line 15 then runs too" in why(PATCH + "\n\nregister('me')\n", WITHOUT, train=train)
    assert "where line 15 then runs too" in why(PATCH + "\n\nif ON:\n    torch.speed = 1\n", WITHOUT, train=train)
    assert migrated(PATCH + "\n\nif __name__ == '__main__':\n    print()\n", WITHOUT, train=train)


def test_older_releases_without_the_hook() -> None:
    older = Options(unsafe_fixes=True, pinned=lambda _: ((0, 12), (0, 14)))
    assert set(migrated(options=older)) == {"pkg/patch.py", "pkg/model.py"}


@pytest.mark.parametrize(
    ("reason", "patch", "model", "others"),
    [
        ("no spec that names", PATCH, "from pkg.patch import apply_patch\n\napply_patch()\n", {}),
        ("no call of", PATCH, MODEL.replace("apply_patch()\n", ""), {}),
        ("is reached", PATCH, MODEL.replace("\napply_patch()", "\nif FAST:\n    apply_patch()"), {}),
        (
            "patches only on a condition",
            PATCH.replace("    SelfAttention.forward = scaled", "    if FAST:\n        SelfAttention.forward = scaled"),
            MODEL,
            {},
        ),
        ("without calling it", PATCH, MODEL + "\n\nMAKERS = {'local': get_gpt_layer_local_spec}\n", {}),
        ("imports `mbridge.AutoBridge`", PATCH, MODEL, {"bridge": "from mbridge import AutoBridge\n"}),
        ("a spec that may name `SelfAttention`", PATCH, MODEL, {"hybrid": HYBRID}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "class Mine(SelfAttention): ...\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(x):\n    return type(x) is SelfAttention\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "NAMES = {SelfAttention: 1}\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(c):\n    return SelfAttention(c)\n"}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "def f(x):\n    return SelfAttention.forward(x, 1)\n"}),
        ("in a way that", PATCH + "\n\ndef other(x):\n    return SelfAttention.forward(x, 1)\n", MODEL, {}),
        ("in a way that", PATCH + "\n\nnow = SelfAttention.forward\n", MODEL, {}),
        ("before the class is there", SPEC_FIRST + AT_ONCE, "", {}),
        ("no import of", AT_ONCE, WITHOUT, {}),
        ("the patch is made only if pkg/model.py:11 is reached", AT_ONCE,
            WITHOUT + "\n\nif FAST:\n    import pkg.patch\n", {}),
        ("`with_classes` is taken", PATCH, MODEL + "\n\ndef with_classes(): ...\n", {}),
        ("`SelfAttention` is taken", PATCH, MODEL + "\n\ndef f(SelfAttention): ...\n", {}),
        ("without calling it", PATCH, MODEL, {"list": LIST}),
        ("is not plainly imported", GUARDED, MODEL, {}),
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
        ("means another name inside of a class", INNER.replace("out * 2", "out * __scale"), MODEL, {}),
        ("uses `scale` of", INNER.replace("    orig", "    scale = 2\n    orig").replace(
            "*args, **kwargs):", "*args, scale=scale, **kwargs):"), MODEL, {}),
        ("uses `original` of", INNER.replace("out * 2", "(lambda original: original)(out)"), MODEL, {}),
        ("uses `original` of", INNER.replace("    def", "    original = twice(original)\n\n    def"), MODEL, {}),
        ("uses `forward` of", INNER.replace("    Self", "    forward = twice(forward)\n    Self"), MODEL, {}),
        ("uses `forward` of", INNER + "    print(forward)\n", MODEL, {}),
        ("asks for `make` when `apply_patch` is called", PATCH.replace("= scaled", "= make(scaled)"), MODEL, {}),
        ("asks for `SCALE` when", "from functools import partialmethod\nSCALE = read()\n" + PATCH.replace("= scaled",
            "= partialmethod(scaled, SCALE)"),
            MODEL, {}),
        ("asks for `SCALE` when", "SCALE = 2\n" + INNER.replace(
            "*args, **kwargs):", "*args, scale=SCALE, **kwargs):"), MODEL, {}),
        ("what an earlier line puts on the class", PATCH + "    SelfAttention.backward_dw = partialmethod(forward)\n",
            MODEL, {}),
        ("the patch is made only if pkg/patch.py:15 is reached", PATCH.replace(
            "def apply_patch():\n",
            "def apply_patch():\n    import os\n    if os.environ.get('X') is None:\n        return\n"),
            MODEL, {}),
        ("the patch is made only if pkg/model.py:9", PATCH, MODEL.replace("\napply_patch()",
            "\ndef go():\n    if off():\n        return\n"
            "    apply_patch()\n"), {}),
        ("the patch is made only if pkg/model.py:12", PATCH, MODEL.replace("\napply_patch()",
            "\ndef go():\n    apply_patch()\n    print()\n"
            "\n\nif on():\n    go()\n"), {}),
        ("is not plainly imported", INNER.replace("SelfAttention\n", "SelfAttention as SA\n").replace(
            "SelfAttention.", "SA."), MODEL, {}),
        ("is not plainly imported", INNER.replace("megatron.core.transformer.attention", ".names"), MODEL,
            {"names": IMPORT}),
        ("in a way that", PATCH.replace("\n\n\ndef apply",
            "\n\n\nf = lambda x: SelfAttention.forward(x)\n\n\ndef apply"),
            MODEL, {}),
        ("in a way that", PATCH, MODEL, {"own": IMPORT + "SPEC = ModuleSpec(module=OTHERS[SelfAttention])\n"}),
        ("and not as Megatron's own", PATCH, MODEL.replace("import get_gpt_layer_local_spec", "import *"), {}),
        ("a spec that may name `SelfAttention`", PATCH, MODEL, {"hybrid": HYBRID_BY_MODULE}),
        ("imports `pretrain_gpt.model_provider`", PATCH, MODEL, {"g": "from pretrain_gpt import model_provider\n"}),
        ("before the class is there", SPEC_FIRST.replace("spec=get_gpt_layer_local_spec()", "").replace("return spec",
            "return get_gpt_layer_local_spec()") + "\n\nSPEC = model()\n" + AT_ONCE, "", {}),
        ("pkg/model.py:5 makes a spec before", PATCH, MODEL.replace(
            "\nfrom pkg", "\n\nSPEC = get_gpt_layer_local_spec()\nfrom pkg"),
            {}),
        ("is taken in pkg/model.py", SWAP, WITHOUT + "import pkg.patch\nfrom elsewhere import Mine\n", {}),
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
