"""Every shape of a patch, and what looks like one: each form in forms.txt, with the findings as somebody read them."""

from pathlib import Path

from checking import found_in, lines_by_role

FORMS = Path(__file__).parent / "forms.txt"
BETWEEN = "\n----\n"
HEAD = """\
import atexit, contextlib, copyreg, ctypes, functools, gc, gorilla, inspect, os, pathlib, subprocess, sys, textwrap
import threading, types
from unittest import mock
from unittest.mock import patch
import torch, wrapt
import megatron.core
from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
from elsewhere import Other, register_patch, unknown, wrap
def new(self, *args, **kwargs): return self
"""


def test_every_form_is_found_as_somebody_read() -> None:
    """A file for each."""
    told = FORMS.read_text()
    forms = [section.partition("\n=>")[0] for section in told.removesuffix("\n").split(BETWEEN)]
    assert with_findings(forms) == told


def with_findings(forms: list[str]) -> str:
    """The forms, and what a scan says of each."""
    above = HEAD.count("\n")
    files = {f"m{number:03}.py": f"{HEAD}{form}\n" for number, form in enumerate(forms)}
    said: dict[str, str] = dict.fromkeys(files, "")
    for one in found_in(files):
        words = [
            f"{one.line - above}: {one.shape} {one.target.removeprefix('megatron.core.')}",
            one.confidence,
            one.seam,
        ]
        words += ["temporary"] * one.temporary
        near = {role: [line - above for line in lines] for role, lines in lines_by_role(one).items()}
        words += [f"{role} {' '.join(map(str, lines))}" for role, lines in sorted(near.items())]
        said[one.path] += f" {', '.join(words)};"
    return BETWEEN.join(f"{form}\n=>{said[path]}" for form, path in zip(forms, files, strict=True)) + "\n"
