"""Patches by a helper: a function, a method or a class of the repository that is given object, name and function."""

import re

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in

HEAD = """\
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.mlp import MLP
def f(self, *args): ...
"""
MLP_FORWARD = f"{CORE}.transformer.mlp.MLP.forward"
HELPERS = {
    "a function": (
        "def _set(owner, name, new):\n    if not getattr(owner, '_done', False):\n        setattr(owner, name, new)\n",
        "_set(MLP, 'forward', f)",
    ),
    "by keywords": (
        (
            "def _set(*, owner, attribute, value):\n    old = getattr(owner, attribute)\n"
            "    setattr(owner, attribute, value)\n    return old\n"
        ),
        "_set(owner=MLP, attribute='forward', value=f)",
    ),
    "of a helper": (
        "def _set(o, n, v): setattr(o, n, v)\ndef install(cls, name, fn): _set(cls, name, fn)\n",
        "install(MLP, 'forward', f)",
    ),
    "a method": (
        "class Book:\n    def put(self, owner, name, new): setattr(owner, name, new)\nbook = Book()\n",
        "book.put(MLP, 'forward', f)",
    ),
    "a static method": (
        "class Book:\n    @staticmethod\n    def put(owner, name, new): setattr(owner, name, new)\n",
        "Book.put(MLP, 'forward', f)",
    ),
    "a class": (
        (
            "class Entry:\n    def __init__(self, owner, name, new):\n"
            "        self.owner, self.name, self.new = owner, name, new\n"
            "    def apply(self): setattr(self.owner, self.name, self.new)\n"
        ),
        "Entry(MLP, 'forward', f)",
    ),
    "a dataclass": (
        (
            "import dataclasses\n@dataclasses.dataclass\nclass Entry:\n    owner: type\n    name: str\n    new: int\n"
            "    def apply(self): setattr(self.owner, self.name, self.new)\n"
        ),
        "Entry(MLP, name='forward', new=f)",
    ),
    "a decorator": (
        "def into(cls, name):\n  def inner(fn): setattr(cls, name, fn)\n  return inner\n",
        "@into(MLP, 'forward')\ndef mine(self, x): ...",
    ),
    "a decorator, by the function's name": (
        (
            "def into(cls, name=None):\n    def inner(fn):\n        setattr(cls, name or fn.__name__, fn)\n"
            "        return fn\n    return inner\n"
        ),
        "@into(MLP)\ndef forward(self, x): ...",
    ),
    "a factory of wrappers": (
        "def traced(owner, name, make):\n    setattr(owner, name, make(getattr(owner, name)))\n",
        "traced(MLP, 'forward', f)",
    ),
}


@pytest.mark.parametrize("form", HELPERS)
def test_in_one_file(form: str) -> None:
    helper, call = HELPERS[form]
    source = f"{HEAD}{helper}{call}\n"
    line = source[: source.index(call)].count("\n") + 1
    check_found(source, target=MLP_FORWARD, line=line, confidence="certain", shape="setattr")


@pytest.mark.parametrize("form", HELPERS)
def test_of_a_file_that_says_nothing_of_megatron(form: str) -> None:
    helper, call = HELPERS[form]
    name = re.findall(r"\w+", call)[0]
    user = f"from tools import {name}\n{HEAD}{call}\n"
    files = {"tools/__init__.py": f"from .setting import {name}\n", "tools/setting.py": helper, "a.py": user}
    check_found(files, path="a.py", target=MLP_FORWARD, confidence="certain")
    files = {"tools.py": helper, "a.py": f"import tools\n{HEAD}{call.replace(name, f'tools.{name}', 1)}\n"}
    check_found(files, path="a.py", target=MLP_FORWARD, confidence="certain")


@pytest.mark.parametrize("names", ["vars(owner)", "owner.__dict__", "owner._modules"])
def test_items_of_a_namespace_in_another_file(names: str) -> None:
    helper = f"def put(owner, name, new):\n    {names}[name] = new\n"
    user = f"from tools import put\n{HEAD}model = GPTModel()\nput(model, 'output_layer', Head())\n"
    check_found({"tools.py": helper, "a.py": user}, path="a.py", target=f"{GPT}.output_layer", confidence="certain")
    check_noop({"tools.py": helper, "a.py": user.replace("model, 'output_layer'", "own, 'head'")})


def test_an_unknown_object() -> None:
    """The name says what it may be, as in an assignment."""
    helper = "def put(owner, name, new): setattr(owner, name, new)\n"
    check_found(
        f"{HEAD}{helper}def g(model):\n    for m in model.modules(): put(m, 'forward', f.__get__(m))\n",
        line=6,
        confidence="possible",
        options={"possible": True},
    )


def test_what_is_no_patch() -> None:
    helper = "def put(owner, name, new): setattr(owner, name, new)\n"
    check_noop(f"{HEAD}{helper}put(f, 'forward', f)\n")  # on something of one's own
    check_noop(f"{HEAD}{helper}class Own(MLP):\n    def forward(self): ...\nput(Own, 'forward', f)\n")
    check_noop(f"{HEAD}def put(owner, name, new=True): setattr(owner, name, new)\nput(GPTModel, 'forward')\n")
    check_noop({"b.py": helper, "a.py": f"{HEAD}from b import put\nput(print, 'forward', f)\n"})


def test_a_helper_that_names_the_attribute_itself() -> None:
    """The call that says which one is the patch, not the one further out."""
    helper = "def put(owner, name, new): setattr(owner, name, new)\ndef wrap(owner): put(owner, 'forward', f)\n"
    check_found(f"{HEAD}{helper}wrap(MLP)\n", line=5, target=MLP_FORWARD)


def test_a_helper_that_takes_names_from_a_table() -> None:
    """Where it sets them is the patch, and no call of it another one."""
    helper = "def put(owner, table):\n    for name, new in table: setattr(owner, name, new)\n    put(owner, table)\n"
    (finding,) = found_in(f"{HEAD}{helper}put(MLP, load())\n")
    assert finding.line == 5
