"""What is a patch, in every spelling, and what is none."""

import random
from collections.abc import Mapping

import pytest
from rooms import found

HEAD = """\
import sys, types, inspect, importlib
from unittest import mock
import megatron.core.parallel_state as ps
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
import megatron.core.models.gpt.gpt_model as gpt_module
from megatron.core.transformer import attention
def new(self, *args): ...
"""
LINES = HEAD.count("\n")
GPT = "GPTModel.forward"

PATCHES = {
    "a class's method": ("GPTModel.forward = new", [(1, GPT, "class-attr")]),
    "setattr": ('setattr(GPTModel, "forward", new)', [(1, GPT, "setattr")]),
    "setattr of object": ('object.__setattr__(GPTModel, "forward", new)', [(1, GPT, "setattr")]),
    "its dict": ('GPTModel.__dict__["forward"] = new', [(1, GPT, "class-attr")]),
    "vars": ('vars(gpt_module)["GPTModel"] = new', [(1, "gpt_model.GPTModel", "module-attr")]),
    "a dict under a name": ('d = vars(gpt_module)\nd["GPTModel"] = new', [(2, "gpt_model.GPTModel", "module-attr")]),
    "an update": ("gpt_module.__dict__.update(GPTModel=new)", [(1, "gpt_model.GPTModel", "module-attr")]),
    "mock": ('mock.patch.object(GPTModel, "forward", new)', [(1, GPT, "mock")]),
    "mock by a text": ('mock.patch("megatron.core.models.gpt.gpt_model.GPTModel.forward", new)', [(1, GPT, "mock")]),
    "a module's function": (
        "ps.get_tensor_model_parallel_group = new",
        [(1, "get_tensor_model_parallel_group", "module-attr")],
    ),
    "a module's class": ("attention.SelfAttention = new", [(1, "attention.SelfAttention", "module-attr")]),
    "an entry of sys.modules": ('sys.modules["megatron.core.utils"] = new', [(1, "core.utils", "sys-modules")]),
    "a method of an object": ("m = GPTModel()\nm.forward = types.MethodType(new, m)", [(2, GPT, "instance-attr")]),
    "bound by __get__": (
        "def f(m):\n    m._postprocess = new.__get__(m, GPTModel)",
        [(2, "GPTModel._postprocess", "instance-attr")],
    ),
    "a part of a model": (
        "class Head: ...\nm = GPTModel()\nm.output_layer = Head(1)",
        [(3, "GPTModel.output_layer", "submodule")],
    ),
    "a class of an object": (
        "class Mine: ...\nm = GPTModel()\nm.__class__ = Mine",
        [(3, "GPTModel.__class__", "class-of-instance")],
    ),
    "by the annotation of a parameter": ("def f(m: GPTModel):\n    m.forward = new", [(2, GPT, "instance-attr")]),
    "by the annotation of `self`": (
        "def mine(self: GPTModel): ...\ndef f(m):\n    m.thing = types.MethodType(mine, m)",
        [(3, "GPTModel.thing", "instance-attr")],
    ),
    "by what the caller gives": ("def f(m):\n    m.forward = new\nf(GPTModel())", [(2, GPT, "instance-attr")]),
    "by what is used of it": (
        "def f(m):\n    m.set_input_tensor(1)\n    m._postprocess = types.MethodType(new, m)",
        [(3, "GPTModel._postprocess", "instance-attr")],
    ),
    "a helper": (
        'def put(owner, name, fn):\n    setattr(owner, name, fn)\nput(GPTModel, "forward", new)',
        [(3, GPT, "setattr")],
    ),
    "a decorator": (
        (
            "def patches(owner):\n    def inner(fn):\n        setattr(owner, fn.__name__, fn)\n"
            "        return fn\n    return inner\n"
            "@patches(GPTModel)\ndef forward(self): ..."
        ),
        [(6, GPT, "setattr")],
    ),
    "rows of a table": (
        'for owner, name in [(GPTModel, "forward"), (TopKRouter, "routing")]:\n    setattr(owner, name, new)',
        [(2, GPT, "setattr"), (2, "TopKRouter.routing", "setattr")],
    ),
    "a register call": (
        'register_patch("megatron.core.models.gpt.gpt_model.GPTModel.forward", new)',
        [(1, GPT, "string-target")],
    ),
    "a table of texts": (
        'PATCHES = [("megatron.core.models.gpt.gpt_model.GPTModel.forward", new)]\napply_patches(PATCHES)',
        [(1, GPT, "string-target")],
    ),
    "wherever it was imported": (
        'for m in list(sys.modules.values()):\n    setattr(m, "get_tensor_model_parallel_group", new)',
        [(2, "get_tensor_model_parallel_group", "sys-modules")],
    ),
    "source that is executed": (
        "def f():\n    text = inspect.getsource(GPTModel)\n    exec(text)",
        [(3, "gpt_model.GPTModel", "source-rewrite")],
    ),
    "source that is written back": (
        'def f(root):\n    open(f"{root}/megatron/core/utils.py", "w").write("")',
        [(2, "core.utils", "source-rewrite")],
    ),
    "what a try falls back to": (
        "try:\n    from nowhere import fast\nexcept ImportError:\n    GPTModel.forward = new",
        [(4, GPT, "class-attr")],
    ),
}

NO_PATCHES = {
    "its own attribute": "class Mine(GPTModel):\n    def __init__(self):\n        self.decoder = Decoder()",
    "a subclass": "class Mine(GPTModel):\n    def forward(self): ...",
    "a method of a subclass": "class Mine(GPTModel):\n    def forward(self): ...\nMine.forward = new",
    "data of an object": "m = GPTModel()\nm.training = False",
    "data of a configuration": "def f(config):\n    config.num_layers = 2",
    "a function of a configuration": "from megatron.core.transformer.transformer_config import TransformerConfig\n"
    "c = TransformerConfig()\nc.init_method = new",
    "a mark": "GPTModel._mine = True",
    "a kept original": "GPTModel._original_forward = GPTModel.forward",
    "what was there before": "old = GPTModel.forward\nGPTModel.forward = old",
    "what an object kept": (
        "class P:\n    def on(self):\n        self.old = GPTModel.forward\n"
        "    def off(self):\n        GPTModel.forward = self.old"
    ),
    "a forward hook": "m = GPTModel()\nm.register_forward_hook(new)",
    "state that the library itself sets": "ps._TENSOR_MODEL_PARALLEL_GROUP = new",
    "another library's class": "import torch\ntorch.nn.Linear.forward = new",
    "the repository's own class": "class GPTModel2: ...\nGPTModel2.forward = new",
    "an object of nothing that is known": "def f(m):\n    m.thing = new",
    "an item of a dict": 'd = {}\nd["forward"] = new',
    "a text": 'print("megatron.core.models.gpt.gpt_model.GPTModel.forward")',
}


@pytest.mark.parametrize("case", PATCHES)
def test_patches(case: str) -> None:
    code, expected = PATCHES[case]
    assert [(p.line - LINES, short(p.target, name), str(p.spelling)) for p, (_, name, _) in zip(
        found(HEAD + code + "\n"), expected, strict=True
    )] == expected  # fmt: skip


def short(target: str, name: str) -> str:
    """The end of a dotted name, as long as the expected one."""
    return ".".join(target.split(".")[-len(name.split(".")) :])


@pytest.mark.parametrize("case", NO_PATCHES)
def test_what_is_no_patch(case: str) -> None:
    assert found(HEAD + NO_PATCHES[case] + "\n") == []


def test_tests_and_copies_of_the_library_are_left_out() -> None:
    code = HEAD + "GPTModel.forward = new\n"
    assert found({"tests/a.py": code, "test_b.py": code, "vendor/megatron/core/c.py": code}) == []


def test_a_patch_that_is_put_back_is_temporary() -> None:
    code = "def f():\n    old = GPTModel.forward\n    GPTModel.forward = new\n"
    code += "    try:\n        g()\n    finally:\n        GPTModel.forward = old\n"
    patches = found(HEAD + code)
    assert [(patch.line - LINES, patch.temporary) for patch in patches] == [(3, True)]


def test_what_becomes_a_method_knows_its_self() -> None:
    code = "def mine(self):\n    self.state_dict = new\nGPTModel.forward = mine\n"
    assert [short(patch.target, "a.b") for patch in found(HEAD + code)] == ["GPTModel.state_dict", GPT]


def test_patches_across_files() -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/tools.py": "def put(owner, name, fn):\n    setattr(owner, name, fn)\n",
        "pkg/model.py": "from megatron.core.models.gpt import GPTModel\ndef make() -> GPTModel: ...\n",
        "pkg/use.py": (
            "from .tools import put\nfrom .model import make\n"
            'put(make(), "forward", lambda: 1)\nmake().decoder.forward = print  # megatron\n'
        ),
    }
    expected = [("pkg/use.py", 3, GPT), ("pkg/use.py", 4, "TransformerBlock.forward")]
    assert sorted((patch.path, patch.line, short(patch.target, "a.b")) for patch in found(files)) == expected
    assert told(files) == told(dict(sorted(files.items(), reverse=True)))


def test_the_order_of_files_does_not_matter() -> None:
    codes = [code for code, _ in PATCHES.values()]
    files = {f"f{number}.py": HEAD + code + "\n" for number, code in enumerate(codes)}
    files["uses.py"] = "from f0 import *\nimport f3, f4\nGPTModel.other = f3.new\nf4.GPTModel.forward = f3.new\n"
    paths, expected = list(files), told(files)
    for seed in range(3):
        random.Random(seed).shuffle(paths)
        assert told({path: files[path] for path in paths}) == expected


def told(files: Mapping[str, str]) -> list[tuple[object, ...]]:
    """What is found, as plain data."""
    return [(*patch.key, str(patch.spelling), str(patch.sure), patch.temporary) for patch in found(files)]
