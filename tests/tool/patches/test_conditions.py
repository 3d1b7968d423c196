"""On which releases the patch in a body runs, by the conditions around it: each body in conditions.txt.

`?`: it depends on something besides, or on something that is not known.
"""

from pathlib import Path

from forms import check_forms
from rooms import RELEASES, names_of

from mcore_unpatch.code.reached import Guards
from mcore_unpatch.findings.finding import Live
from mcore_unpatch.patches.find import Finder
from mcore_unpatch.patches.lives import live_of

BODIES = Path(__file__).parent / "conditions.txt"
HEAD = """\
import importlib, inspect, sys
import importlib.metadata
import importlib.util
import megatron.core
import importlib_metadata
import torch
from packaging.version import Version
from pkg_resources import parse_version
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
def f(self, *args, **kwargs): return self
V = megatron.core.__version__
N = tuple(int(x) for x in V.split(".")[:2])
M = int(V.split(".")[1])
def plain(a, b=2, /, c=3, *rest, d, e=5, **others): return None
def nothing(): return
def kept(than="0.16", *, of=V): return of >= than
def spread(**options): return V >= "0.16"
def first(a, b): return a
def tries():
    try:
        return V >= "0.16"
    except Exception:
        return None
def either(flag):
    if flag:
        return V >= "0.16"
    return V >= "0.16"
def differ(flag):
    if flag:
        return V >= "0.16"
    return V >= "0.15"
def renamed(than):
    low = than
    return V >= low
def defaulted(than=None):
    if than is None:
        than = "0.16"
    return V >= than
def branched(flag, than="0.16"):
    low = than if flag else "0.14"
    high = low
    return V >= high
def falls():
    try:
        low = "0.16"
    except Exception:
        return None
    return V >= low
def outer(than):
    def inner():
        return V >= than
    return inner()
class Ask:
    def recent(self, than):
        return V >= than
    @staticmethod
    def plain(than):
        return V >= than

import os
from typing import TYPE_CHECKING
class Holder:
    def __init__(self): self.model = GPTModel()
SET = M >= 16
def put():
    global GIVEN
    GIVEN = M >= 16
"""
OTHER = """\
import megatron.core
NEW = megatron.core.__version__ >= "0.16"
def recent(than="0.16"): return megatron.core.__version__ >= than
"""


def test_every_body_runs_as_somebody_read() -> None:
    check_forms(BODIES, lives_of)


def lives_of(bodies: list[str]) -> list[str]:
    """The releases on which the patch of each body runs, in a file of its own."""
    files = {"other.py": OTHER}
    for number, body in enumerate(bodies):
        lines = body.replace("PATCH", "GPTModel.forward = f").splitlines()
        files[f"m{number:03}.py"] = f"{HEAD}def case(use_x):\n" + "".join(f"    {line}\n" for line in lines)
    finder = Finder(names_of(files))
    patches = finder.all()
    guards = Guards(finder.names)
    lives = {patch.path: Live(*live_of(guards, patch, RELEASES)) for patch in patches}
    paths = [path for path in files if path != "other.py"]
    return [f" {lives[one]}{'?' if lives[one].depends else ''}" for one in paths]
