"""What expressions stand for: each form of naming Megatron's things in forms.txt, with the patch that is found."""

from pathlib import Path

from checking import found_in

FORMS = Path(__file__).parent / "forms.txt"
BETWEEN = "\n----\n"
HEAD = """\
import builtins, copy, functools, importlib, operator, pkgutil, pydoc, sys, wrapt
from typing import Optional, Type, TypeVar, cast
from wrapt import when_imported
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import unwrap_model
from elsewhere import other, unknown
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
M = TypeVar("M", bound=GPTModel)
Models = list[GPTModel]
TABLE = {"forward": new}
CLASSES = [int, GPTModel]
BY_CLASS = {GPTModel: new}
TEXT = "GPTModel.forward = new"
"""


def test_every_form_is_found_as_somebody_read() -> None:
    """A file for each."""
    told = FORMS.read_text()
    forms = [section.partition("\n=>")[0] for section in told.removesuffix("\n").split(BETWEEN)]
    assert with_findings(forms) == told


def with_findings(forms: list[str]) -> str:
    """The forms, and what a scan says of each."""
    files = {f"m{number:03}.py": f"{HEAD}{form}\n" for number, form in enumerate(forms)}
    said: dict[str, str] = dict.fromkeys(files, "")
    for finding in found_in(files):
        what = f" {finding.shape} {finding.target.removeprefix('megatron.core.')} {finding.confidence}"
        said[finding.path] += what
    return BETWEEN.join(f"{form}\n=>{said[path]}" for form, path in zip(forms, files, strict=True)) + "\n"
