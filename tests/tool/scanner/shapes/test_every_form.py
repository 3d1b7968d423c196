"""Every shape of a patch, and what looks like one: each form in forms.txt, with the findings as somebody read them."""

from pathlib import Path

from checking import found_in, lines_by_role
from forms import check_forms

FORMS = Path(__file__).parent / "forms.txt"
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
    check_forms(FORMS, findings_of)


def findings_of(forms: list[str]) -> list[str]:
    """What a scan says of each form, in a file of its own."""
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
    return list(said.values())
