"""A small repository before and after `unpatch migrate`: the same logits and gradients on a real model."""

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from harness import on_ranks

try:
    from planning import migrate

    from mcore_unpatch.editing.edits import Options
except ModuleNotFoundError:  # on a rank, which is given the files
    pass

INSTALLED = '''
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.dot_product_attention import DotProductAttention


def apply_patch():
    """Softer attention, in halves."""
    original = SelfAttention.forward

    def forward(self, hidden_states, *args, **kwargs):
        out, bias = original(self, hidden_states * 1.5, *args, **kwargs)
        return out - 0.25 * hidden_states, bias

    SelfAttention.forward = forward
    DotProductAttention.forward = shifted


def shifted(self, query, key, value, *args, **kwargs):
    return (query + value).reshape(*query.shape[:2], -1)
'''
AT_ONCE = """
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.dot_product_attention import DotProductAttention

original = SelfAttention.forward


def forward(self, hidden_states, *args, **kwargs):
    out, bias = original(self, hidden_states * 1.5, *args, **kwargs)
    return out - 0.25 * hidden_states, bias


def shifted(self, query, key, value, *args, **kwargs):
    return (query + value).reshape(*query.shape[:2], -1)


SelfAttention.forward = forward
setattr(DotProductAttention, "forward", shifted)


def apply_patch():
    print("applied")
"""
LAYER = """
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.transformer_layer import TransformerLayer

original = TransformerLayer.forward


def shifted(self, query, key, value, *args, **kwargs):
    return (query + value).reshape(*query.shape[:2], -1)


def forward(self, hidden_states, *args, **kwargs):
    hidden_states, context = original(self, hidden_states, *args, **kwargs)
    return hidden_states * 1.25, context


def apply_patch():
    TransformerLayer.forward = forward
    setattr(DotProductAttention, "forward", shifted)
"""
MODEL = """
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

from small_repository.patch import apply_patch

apply_patch()


def model_provider(config):
    spec = get_gpt_layer_local_spec(normalization=config.normalization)
    return GPTModel(config, spec, 48, 64, position_embedding_type="rope")
"""


def run(folder: Path, files: dict[str, str], case: Any) -> Any:
    """The logits and gradients of the model that these files make, and the classes of its modules."""
    from harness.faithful import inputs_for
    from harness.models import build_config
    from harness.oracle import gradients_of
    from megatron.core.transformer.attention import SelfAttention
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.transformer_layer import TransformerLayer

    (folder / "small_repository").mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    classes = (SelfAttention, DotProductAttention, TransformerLayer)
    before = [dict(vars(cls)) for cls in classes]
    torch.manual_seed(99)
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        try:
            model = importlib.import_module("small_repository.model").model_provider(build_config(case))
            out = model(**inputs_for(case))
            out.sum().backward()
            return out.detach(), gradients_of(model), {type(module).__name__ for module in model.modules()}
        finally:
            for name in [name for name in sys.modules if name.startswith("small_repository")]:
                del sys.modules[name]
            for cls, old in zip(classes, before, strict=True):
                if "forward" in old:
                    cls.forward = old["forward"]
                elif "forward" in vars(cls):
                    del cls.forward


NAMES = ("small_repository/__init__.py", "small_repository/patch.py", "small_repository/model.py")


@pytest.fixture(params=[INSTALLED, AT_ONCE, LAYER], ids=["installed", "at once", "layer"])
def both(request: pytest.FixtureRequest) -> tuple[dict[str, str], dict[str, str]]:
    """The files before and after."""
    files = dict(zip(NAMES, ("", request.param, MODEL), strict=True))
    done = migrate({name: text.encode() for name, text in files.items()}, Options(unsafe_fixes=True))
    assert done.changed == {*NAMES[1:]}
    assert not done.after
    return files, {name: text.decode() for name, text in done.files.items()}


@on_ranks
def test_a_repository_gives_what_it_gave(case: Any, both: Any, tmp_path: Path) -> None:
    old, old_gradients, theirs = run(tmp_path / "before", both[0], case)
    new, gradients, ours = run(tmp_path / "after", both[1], case)
    assert torch.equal(old, new)
    assert gradients.keys() == old_gradients.keys()
    assert all(torch.equal(gradients[name], old_gradients[name]) for name in gradients)
    assert not any(name.startswith("Patched") for name in theirs)
    assert any(name.startswith("Patched") for name in ours)
