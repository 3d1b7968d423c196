"""On which releases a patch is made: by its place, by the helper that makes it, by the calls of what installs it."""

import pytest
from rooms import RELEASES, names_of, span

from mcore_unpatch.code.reached import Guards
from mcore_unpatch.patches.alive import alive
from mcore_unpatch.patches.find import Finder

HEAD = """\
import sys, types, inspect
from packaging.version import Version
import megatron.core
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.moe_layer import MoELayer
OLD = Version(megatron.core.__version__) < Version("0.16")
def new(self, *args): ...
"""

BOUNDS = {
    "nothing": ("GPTModel.forward = new", "all"),
    "a test around": ("if OLD:\n    GPTModel.forward = new", "... 0.15.3"),
    "a test in the helper": (
        "def put(owner):\n    if OLD:\n        setattr(owner, 'forward', new)\nput(GPTModel)",
        "... 0.15.3",
    ),
    "a test around the helper": (
        "def put(owner, name):\n    setattr(owner, name, new)\nif not OLD:\n    put(GPTModel, 'forward')",
        "0.16.0 ... later",
    ),
    "what a helper is given": (
        (
            "def put(owner, name, since):\n    if Version(megatron.core.__version__) >= Version(since):\n"
            "        setattr(owner, name, new)\nput(GPTModel, 'forward', '0.18')"
        ),
        "0.18.0 ... later",
    ),
    "the only call of the installer": (
        "def install():\n    GPTModel.forward = new\nif OLD:\n    install()",
        "... 0.15.3",
    ),
    "one of two calls": ("def install():\n    GPTModel.forward = new\nif OLD:\n    install()\ninstall()", "all"),
    "an installer that is handed on": (
        "def install():\n    GPTModel.forward = new\nif OLD:\n    install()\nlater = [install]",
        "all",
    ),
    "a name of a loop": (
        (
            "from megatron.core import utils\nfor name in ['get_pg_size', 'nothing']:\n    if hasattr(utils, name):\n"
            "        setattr(utils, name, new)"
        ),
        "0.13.0 ... later",
    ),
    "what the object at hand has": (
        (
            "def f(layer):\n    mlp = layer.mlp\n    if len(inspect.signature(mlp.combine).parameters) < 2:\n"
            "        mlp.postprocess = types.MethodType(new, mlp)\n    mlp.combine = types.MethodType(new, mlp)\n"
            "    mlp.route = mlp.dispatch = 1"
        ),
        "0.16.0 ... later",
    ),
    "a module that is loaded": (
        (
            "for m in list(sys.modules.values()):\n    if hasattr(m, 'hadamard_transform'):\n"
            "        setattr(m, 'hadamard_transform', new)"
        ),
        "0.16.0 ... later",
    ),
    "what no release has yet": ("if hasattr(GPTModel, 'to_come'):\n    GPTModel.to_come = new", "later"),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_the_releases_of_a_patch(case: str) -> None:
    code, expected = BOUNDS[case]
    finder = Finder(names_of(HEAD + code + "\n"))
    patch, guards = finder.all()[0], Guards(finder.names)
    assert span(alive(guards, patch, RELEASES)).removeprefix("0.99.0 ... ") == expected
