"""Factories and classes in a repository of several files: what others do with them decides."""

from __future__ import annotations

import pytest
from planning import Result, migrate

from mcore_unpatch.editing.edits import Options

FACTORY = """def scaled(original, factor):
    def scaling(*args, **kwargs):
        return original(*args, **kwargs) * factor

    return scaling
"""
USE = """from megatron.core.models.gpt.gpt_model import GPTModel

from pkg.factory import scaled


def scale(model: GPTModel):
    model.decoder.forward = scaled(model.decoder.forward, 2)
"""
OF_CLASS = """from megatron.core.transformer.transformer_block import TransformerBlock

original = TransformerBlock.forward


def doubled(self, *args, **kwargs):
    return original(self, *args, **kwargs) * 2


TransformerBlock.forward = doubled
"""


def with_files(**texts: str) -> Result:
    return migrate({f"pkg/{name}.py": text.encode() for name, text in texts.items()}, Options(unsafe_fixes=True))


def said(result: Result) -> list[str]:
    return [remark.text.partition(".\n")[0].removeprefix("Not rewritten: ") for remark in result.plan.remarks]


def test_a_factory_of_another_file_changes_with_all_its_uses() -> None:
    other = USE.replace("def scale", "def embed").replace("decoder", "embedding")
    result = with_files(factory=FACTORY, use=USE, other=other)
    assert result.changed == {"pkg/factory.py", "pkg/use.py", "pkg/other.py"}
    assert b"def scaled(factor):\n    def scaling(_module, _args, output):" in result.files["pkg/factory.py"]
    assert b"model.decoder.register_forward_hook(scaled(2))" in result.files["pkg/use.py"]
    assert b"model.embedding.register_forward_hook(scaled(2))" in result.files["pkg/other.py"]
    assert not result.after


@pytest.mark.parametrize(
    ("other", "because"),
    [
        (
            "from pkg.factory import scaled as s\n\nsame = s(len, 2)\n",
            "pkg/other.py:3 uses `scaled` for something else",
        ),
        ("from pkg import factory\n\nsame = factory.scaled\n", "pkg/other.py:3 uses `scaled` for something else"),
        (USE.replace("decoder", "rotary_pos_emb"), "pkg/other.py:7 uses `scaled` too, and stays"),
    ],
)
def test_a_factory_that_others_need_stays(other: str, because: str) -> None:
    result = with_files(factory=FACTORY, use=USE, other=other)
    assert result.changed == set()
    assert any(because in text for text in said(result))


def test_a_factory_that_may_not_be_edited_stays() -> None:
    files = {"pkg/factory.py": FACTORY.encode(), "pkg/use.py": USE.encode()}
    assert migrate(files, Options(unsafe_fixes=True), editable=["pkg/use.py"]).changed == set()


DERIVED = """from megatron.core.transformer.transformer_block import TransformerBlock as Block


class Mine(Block):
    {}
"""
OF_SOMETHING = """import megatron.core


def wrap(part):
    part.train()
    kept = part.forward

    def new(*args, **kwargs):
        print(args)
        return kept(*args, **kwargs)

    part.forward = new
"""


@pytest.mark.parametrize(
    ("other", "because"),
    [
        (DERIVED.format("def forward(self, x): ..."), "pkg/other.py:4 derives from the class and has a `forward`"),
        (
            DERIVED.format("def run(self, x):\n        return self.forward(x)"),
            "pkg/other.py:6 calls `forward` directly",
        ),
        ("def run(part, x):\n    return part.forward(x)\n", "pkg/other.py:2 calls `forward` directly"),
        ("from pkg.of_class import original\n", "`original` is also used by other files"),
        ("from pkg.of_class import doubled\n", "`doubled` is also used by other files"),
        (OF_CLASS.replace("* 2", "* 3"), "replaces the same method, and their order would change"),
    ],
)
def test_a_class_that_others_use_in_another_way_stays(other: str, because: str) -> None:
    result = with_files(of_class=OF_CLASS, other=other)
    assert result.files["pkg/of_class.py"] == OF_CLASS.encode()
    assert any(because in text for text in said(result)), said(result)


def test_a_wrapper_of_some_module_that_stays_ran_outside_of_that_of_the_class() -> None:
    """Hooks of one module run outside of those for all modules, as wrappers did; wrappers that stay do not."""
    assert with_files(of_class=OF_CLASS, other=OF_SOMETHING).changed == {"pkg/of_class.py", "pkg/other.py"}
    stays = OF_SOMETHING.replace("print(args)", "print(part.weight)")
    result = with_files(of_class=OF_CLASS, other=stays)
    assert result.changed == set()
    assert "pkg/other.py:12 may wrap the same method, and stays" in said(result)[0]


@pytest.mark.parametrize(
    "other",
    [
        DERIVED.format("name = 'mine'"),
        "class Own:\n    def run(self, x):\n        return self.forward(x)\n",
        "def run(model, x):\n    return model.forward(x)\n",
    ],
)
def test_what_has_nothing_to_do_with_the_class_does_not_matter(other: str) -> None:
    result = with_files(of_class=OF_CLASS, other=other)
    assert b"register_module_forward_hook(doubled)" in result.files["pkg/of_class.py"]


def test_a_class_is_asked_on_every_release() -> None:
    """Before 0.16 `RetroModel` derives from `GPTModel`, with a `forward` of its own."""
    text = OF_CLASS.replace("transformer.transformer_block", "models.gpt.gpt_model").replace(
        "TransformerBlock", "GPTModel"
    )
    files = {"m.py": text.encode()}
    old = Options(unsafe_fixes=True, pinned=lambda _: ((0, 14), (0, 19)))
    assert migrate(files, Options(unsafe_fixes=True)).changed == {"m.py"}
    result = migrate(files, old)
    assert result.changed == set()
    assert "derives from the class and has a `forward` of its own" in said(result)[0]


def test_the_class_of_a_spec_is_left_to_the_spec() -> None:
    """A repository that makes such a spec names a subclass in it."""
    spec = """from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_layer import TransformerLayer


def layer_spec():
    return ModuleSpec(module=TransformerLayer)
"""
    text = OF_CLASS.replace("transformer_block", "transformer_layer").replace("TransformerBlock", "TransformerLayer")
    hook = b"register_module_forward_hook(doubled)"
    assert hook in with_files(of_class=text).files["pkg/of_class.py"]
    assert hook not in with_files(of_class=text, spec=spec).files["pkg/of_class.py"]


def test_a_factory_that_another_file_may_take_with_a_star_stays() -> None:
    result = with_files(factory=FACTORY, use=USE, star="from pkg.factory import *\n\nnine = scaled(abs, 3)(3)\n")
    assert result.changed == set()
    assert "pkg/star.py:3 uses `scaled` for something else" in said(result)[0]


KEPT_ON_OBJECT = """from megatron.core.transformer.transformer_block import TransformerBlock
from pkg.base import Base


class Tracer(Base):
    def start(self, block: TransformerBlock):
        self.original = block.forward

        def traced(*args, **kwargs):
            out = self.original(*args, **kwargs)
            print(out)
            return out

        block.forward = traced

    def stop(self, block):
        block.forward = self.original
"""


@pytest.mark.parametrize(
    ("base", "derived", "because"),
    [
        ("self.original = None", "self.other = 1", "pkg/base.py:3 uses `self.original` too"),
        ("self.handle = None", "self.other = 1", "the name `handle` is taken"),
        ("self.other = None", "self.handle = 1", "the name `handle` is taken"),
        ("self.other = None", "self.other = 1", ""),
    ],
)
def test_objects_have_the_attributes_of_their_bases_and_of_what_derives_from_them(
    base: str, derived: str, because: str
) -> None:
    result = with_files(
        tracer=KEPT_ON_OBJECT,
        base=f"class Base:\n    def __init__(self):\n        {base}\n",
        derived=f"from pkg.tracer import Tracer\n\n\nclass Own(Tracer):\n    def more(self):\n        {derived}\n",
    )
    assert bool(result.changed) is not bool(because)
    assert because in "".join(said(result))
