"""Every spelling of a patch, and what only looks like one: each form in forms.txt, with what is found in it."""

from pathlib import Path

from forms import check_forms
from rooms import found

FORMS = Path(__file__).parent / "forms.txt"
HEAD = """\
import builtins, copy, functools, importlib, inspect, operator, pkgutil, pydoc, sys, textwrap, types, typing
from functools import partial
from typing import Any, Optional, Type, TypeVar, cast
from unittest import mock
import torch, wrapt
import megatron.core
from megatron.core import parallel_state, utils
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import unwrap_model
from elsewhere import Other, other, register_patch, unknown, wrap
def new(self, *args, **kwargs): return self
def forward(self, *args): return self
def make(): return GPTModel()
def make_annotated() -> GPTModel: return unknown()
def make_nothing(): return
class Holder:
    model: GPTModel
    def __init__(self): self.model = GPTModel()
    def made(self): return self.model
    @property
    def shown(self): return self.model
class Heir(Holder):
    def again(self): return super().made()
class Own: forward = None
own = Own()
M = TypeVar("M", bound=GPTModel)
Models = list[GPTModel]
TABLE = {"forward": new}
CLASSES = [int, GPTModel]
BY_CLASS = {GPTModel: new}
"""
SHORT = {"megatron.core.": "", "models.gpt.gpt_model.GPTModel": "GPTModel"}


def test_every_form_is_found_as_somebody_read() -> None:
    check_forms(FORMS, patches_of)


def patches_of(forms: list[str]) -> list[str]:
    """The line, the spelling and the target of each patch of each form, in a file of its own."""
    files = {f"m{number:03}.py": f"{HEAD}{form}\n" for number, form in enumerate(forms)}
    said: dict[str, list[str]] = {path: [] for path in files}
    for patch in found(files):
        target = patch.target
        for name, short in SHORT.items():
            target = target.replace(name, short)
        sure = "" if patch.sure == "certain" else f" {patch.sure}"
        line = f"{patch.line - HEAD.count(chr(10))} {patch.spelling} {target}{sure}{' temporary' * patch.temporary}"
        said[patch.path].append(line)
    return [f" {'; '.join(lines)}" if lines else "" for lines in said.values()]
