"""Modules that get another class, in a repository of several files: the hook beside the class, and what stays."""

from __future__ import annotations

import pytest
from planning import Result, migrate

from mcore_unpatch.codemods.edits import Options

MODULES = '''import torch


def extend_instance(obj, mixin):
    """Mixins on an instance."""
    base_cls = obj.__class__
    base_cls_name = obj.__class__.__name__
    obj.__class__ = type(base_cls_name, (mixin, base_cls), {})


class ScalingMixin(torch.nn.Module):
    """Scales."""

    def forward(self, **kwargs):
        out = super().forward(**kwargs)
        return out * self.config.hidden_size**0.5


LAST = 1
'''
HOOK = '''class ScalingMixin(torch.nn.Module):
    """Scales."""

    def forward(self, **kwargs):
        out = super().forward(**kwargs)
        return out * self.config.hidden_size**0.5


def scaling(module, _args, out):
    return out * module.config.hidden_size**0.5


LAST = 1
'''
PROVIDER = """from megatron.core.models.gpt.gpt_model import GPTModel

from pkg.modules import ScalingMixin, extend_instance


def scale(model: GPTModel):
    extend_instance(model.embedding, ScalingMixin)
"""

WRAPPED = """    kept = model.embedding.forward

    def new(*args, **kwargs):
        return kept(*args, **kwargs) + 1

    model.embedding.forward = new
    extend_instance(model"""


def moved(modules: str = MODULES, provider: str = PROVIDER, **others: str) -> Result:
    texts = {"modules": modules, "provider": provider, **others}
    files = {f"pkg/{name}.py": text.encode() for name, text in texts.items()}
    return migrate(files, Options(unsafe_fixes=True))


def test_the_hook_comes_beside_the_class() -> None:
    result = moved()
    assert result.files["pkg/modules.py"].decode() == MODULES[: MODULES.index("class Scal")] + HOOK
    expected = PROVIDER.replace("ScalingMixin, extend_instance", "scaling")
    expected = expected.replace(
        "extend_instance(model.embedding, ScalingMixin)", "model.embedding.register_forward_hook(scaling)"
    )
    assert result.files["pkg/provider.py"].decode() == expected
    (remark,) = result.plan.remarks
    assert remark.text == "`ScalingMixin` (pkg/modules.py:11) stays; delete it where nothing else needs it."


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("from .modules import ScalingMixin, extend_instance", "from .modules import scaling"),
        ("from pkg.modules import ScalingMixin as Mixed, extend_instance", "from pkg.modules import scaling"),
        (
            "from pkg.modules import ScalingMixin\nfrom pkg.modules import extend_instance",
            "from pkg.modules import scaling",
        ),
    ],
)
def test_imports_follow(statement: str, after: str) -> None:
    provider = PROVIDER.replace("from pkg.modules import ScalingMixin, extend_instance", statement)
    provider = provider.replace("ScalingMixin)", "Mixed)") if " Mixed" in statement else provider
    text = moved(provider=provider).files["pkg/provider.py"].decode()
    assert f"\n{after}\n" in text
    assert "model.embedding.register_forward_hook(scaling)" in text
    assert "extend" not in text


def test_an_import_inside_the_function_stays_there() -> None:
    """At the top of the file it might go round in a circle."""
    provider = """from megatron.core.models.gpt.gpt_model import GPTModel


def scale(model: GPTModel):
    from pkg.modules import ScalingMixin, extend_instance

    extend_instance(model.embedding, ScalingMixin)
"""
    text = moved(provider=provider).files["pkg/provider.py"].decode()
    assert "    from pkg.modules import scaling\n\n    model.embedding.register_forward_hook(scaling)\n" in text


def test_two_places_have_one_function() -> None:
    result = moved(second=PROVIDER)
    assert result.changed == {"pkg/modules.py", "pkg/provider.py", "pkg/second.py"}
    assert result.files["pkg/modules.py"].count(b"def scaling(") == 1


def test_tests_that_name_the_class_are_told() -> None:
    texts = {
        "pkg/modules.py": MODULES,
        "pkg/provider.py": PROVIDER,
        "tests/test_it.py": "from pkg.modules import ScalingMixin\n\n\ndef test_it():\n    assert ScalingMixin\n",
    }
    result = migrate({path: text.encode() for path, text in texts.items()}, Options(unsafe_fixes=True))
    (remark,) = result.plan.remarks
    assert remark.text.endswith("Tests that name it: tests/test_it.py:5, tests/test_it.py:1.")


def test_a_class_of_the_same_file_becomes_the_function() -> None:
    modules = MODULES[: MODULES.index("class Scal")]
    provider = PROVIDER.replace("import ScalingMixin, ", "import ").replace(
        "\n\n\ndef scale", "\n\n\n" + MODULES[MODULES.index("class Scal") : MODULES.index("LAST")] + "def scale"
    )
    result = moved(modules, "import torch\n" + provider)
    text = result.files["pkg/provider.py"].decode()
    assert "class" not in text
    assert 'def scaling(module, _args, out):\n    """Scales."""\n    return out * module.config' in text
    assert result.plan.remarks == ()


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ('    """Scales."""', "    factor = 2", "has more than a `forward`"),
        (
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n\n    def forward",
            "has more than a `forward`",
        ),
        ("    def forward", "    @torch.no_grad()\n    def forward", "cannot move out of the class"),
        (
            "class ScalingMixin(torch.nn.Module)",
            "class ScalingMixin(torch.nn.Module, metaclass=M)",
            "has more than a `forward`",
        ),
        ("class ScalingMixin", "@register\nclass ScalingMixin", "has more than a `forward`"),
        ("ScalingMixin(torch.nn.Module)", "ScalingMixin(Other)", "derives from `Other`, which may change more"),
        ("self.config.hidden_size", "self.__size", "cannot move out of the class"),
        ('"""Scales."""\n', '"""Scales."""\n\n    name = """a\n    b"""\n', "has more than a `forward`"),
        ("        return out", "        print('''a\n        b''')\n        return out", "cannot move out of the class"),
        ("out * self", "out * super().scale * self", "uses the original for more than one call"),
        ("out * self", "super().forward(**kwargs) * self", "uses the original for more than one call"),
        ("out = super().forward(**kwargs)", "out = super().forward()", "does not forward all its arguments"),
        (
            "out = super().forward(**kwargs)",
            "out = torch.nn.Module.forward(self, **kwargs)",
            "the original for more than one call",
        ),
        (
            "        out = super",
            "        if self.training:\n            return None\n        out = super",
            "something before and after",
        ),
        (
            "        out = super().forward(**kwargs)",
            "        with torch.no_grad():\n            out = super().forward(**kwargs)",
            "on a condition",
        ),
        (
            "(mixin, base_cls)",
            "(base_cls, mixin)",
            "`extend_instance` changes the class of the module in an unsupported way",
        ),
        (
            "(mixin, base_cls), {}",
            "(mixin, base_cls), {'x': 1}",
            "`extend_instance` changes the class of the module in an unsupported way",
        ),
        (
            "    base_cls = obj.__class__\n",
            "    base_cls = obj.__class__\n    obj.mixed = True\n",
            "`extend_instance` changes the class of the module in an unsupported way",
        ),
        (
            "def extend_instance(obj, mixin)",
            "def extend_instance(obj, *mixin)",
            "`extend_instance` changes the class of the module in an unsupported way",
        ),
        ("LAST = 1", "def scaling(): ...", "the name `scaling` is taken"),
        ("LAST = 1", "class More(ScalingMixin): ...", "asks for `ScalingMixin`"),
        ("LAST = 1", "def f(x):\n    return isinstance(x, ScalingMixin)", "asks for `ScalingMixin`"),
        ("LAST = 1", "def f(x):\n    return type(x) is ScalingMixin", "asks for `ScalingMixin`"),
        ("LAST = 1", "def f(x, y):\n    return x.embedding.forward(y)", "calls `forward` directly"),
        ("LAST = 1", "def f(x, y):\n    return checkpoint(x.embedding.forward, y)", "calls `forward` directly"),
    ],
)
def test_what_is_not_exactly_a_hook_stays(old: str, new: str, because: str) -> None:
    assert MODULES.count(old) == 1
    result = moved(MODULES.replace(old, new))
    assert result.changed == set()
    assert [because] == [because for remark in result.plan.remarks if because in remark.text], result.plan.remarks


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("    extend_instance(", "    done = extend_instance(", "in an unsupported way"),
        ("    extend_instance(", "    scaling = 1\n    extend_instance(", "the name `scaling` is taken"),
        (
            "    extend_instance(model",
            WRAPPED,
            "wraps the same method, and their order would change",
        ),
    ],
)
def test_the_place_is_not_exactly_understood(old: str, new: str, because: str) -> None:
    result = moved(provider=PROVIDER.replace(old, new))
    assert result.changed == set()
    assert [remark for remark in result.plan.remarks if because in remark.text], result.plan.remarks


def test_a_class_in_a_file_that_is_not_migrated_stays() -> None:
    files = {"pkg/modules.py": MODULES.encode(), "pkg/provider.py": PROVIDER.encode()}
    result = migrate(files, Options(unsafe_fixes=True), editable=["pkg/provider.py"])
    assert result.changed == set()
    (remark,) = result.plan.remarks
    assert "is defined in pkg/modules.py, which is not part of this migration" in remark.text
