"""What expressions stand for: each form of naming Megatron's things in forms.txt, with the patch that is found."""

from pathlib import Path

from checking import found_in
from forms import check_forms

FORMS = Path(__file__).parent / "forms.txt"
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
    check_forms(FORMS, findings_of)


def findings_of(forms: list[str]) -> list[str]:
    """What a scan says of each form, in a file of its own."""
    files = {f"m{number:03}.py": f"{HEAD}{form}\n" for number, form in enumerate(forms)}
    said: dict[str, str] = dict.fromkeys(files, "")
    for finding in found_in(files):
        what = f" {finding.shape} {finding.target.removeprefix('megatron.core.')} {finding.confidence}"
        said[finding.path] += what
    return list(said.values())
