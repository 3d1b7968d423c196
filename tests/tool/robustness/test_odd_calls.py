"""Calls with too few arguments, or of another kind: none ends a scan, none hides the patch beside it."""

import ast
import itertools
from collections import Counter

import pytest
from checking import found_in

HEAD = """\
import builtins, contextlib, dataclasses, functools, importlib, inspect, sys, types
from functools import wraps
from typing import cast
from unittest import mock
import wrapt
from wrapt import when_imported
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from megatron.core.utils import unwrap_model
def f(self, *args, **kwargs): return self
TABLE, PATCHES, names = {}, [], input()
model = GPTModel()
"""
CALLED = """
    getattr setattr hasattr delattr vars cast map enumerate zip tuple dict type super isinstance issubclass
    compile exec eval __import__ importlib.import_module importlib.reload importlib.util.find_spec functools.partial
    functools.wraps(f) functools.wraps wraps types.MethodType unwrap_model object.__setattr__ GPTModel.__setattr__
    GPTModel.register_forward_hook model.register_forward_hook model.add_module model.register_module model.apply
    monkeypatch.setattr monkeypatch.delattr mock.patch mock.patch.object mock.patch.dict mock.patch.multiple patch_with
    wrapt.wrap_function_wrapper sys.modules.update sys.modules.setdefault sys.modules.__setitem__
    GPTModel.forward.__get__ f.__get__ when_imported inspect.getsource inspect.signature TABLE.items TABLE.keys
    TABLE.update "".join model.__dict__.update vars(GPTModel).update dataclasses.field dataclasses.replace ModuleSpec
    build_module GPTModel super().forward contextlib.contextmanager register PATCHES.append
"""
ARGUMENTS = (
    "", "0", "GPTModel", "*names", "**names", "'', 0", "(), ()", "GPTModel, names", "None, None, None",
    "GPTModel, 'forward', *names",
)  # fmt: skip
PLACES = (
    "GPTModel.forward = {}",
    "{}.forward = f",
    "{}",
    "for a, b in {}: GPTModel.forward = b",
    "GPTModel.forward, y = {}",
    "if {}: TopKRouter.routing = f",
    "with {}: pass",
    "x{n} = {}\nx{n}.forward = f",
    "@{}\ndef g{n}(): return {}",
    "def r{n}(self):\n    logits = {}\n    return logits, {}\nTopKRouter.routing = r{n}",
    "try: {}\nexcept ImportError: TopKRouter.routing = f",
)


@pytest.mark.slow
def test_odd_calls_in_every_place() -> None:
    places, source = itertools.cycle(PLACES), HEAD
    for number, (called, arguments) in enumerate(itertools.product(CALLED.split(), ARGUMENTS)):
        text = next(places).replace("{n}", str(number)).replace("{}", f"{called}({arguments})") + "\n"
        source += text if _is_python(text) else ""
    found = Counter((finding.shape, finding.target.partition("Model.")[2]) for finding in found_in(source))
    assert found == {
        ("class-attr", "forward"): 180,
        ("class-attr", ""): 180,  # of the router
        ("setattr", "forward"): 4,
        ("setattr", "*"): 1,
        ("mock", "forward"): 1,
        ("mock", "*"): 6,
        ("instance-attr", "forward"): 4,
        ("source-rewrite", ""): 1,
    }


def _is_python(text: str) -> bool:
    """Whether such a call can stand in such a place."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
