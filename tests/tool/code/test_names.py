"""What an expression may be: by its kind, across files, through callers, annotations and the library's own types."""

import pytest
from rooms import last_expression, names_of

GPT = "megatron.core.models.gpt.gpt_model.GPTModel"
BLOCK = "megatron.core.transformer.transformer_block.TransformerBlock"
LAYER = "megatron.core.transformer.transformer_layer.TransformerLayer"
HEAD = "from megatron.core.models.gpt import GPTModel\nimport megatron.core.parallel_state as ps\n"

EXPRESSIONS = {
    "a class, through a re-export": ("GPTModel", f"class {GPT}"),
    "a module under another name": ("ps", "module megatron.core.parallel_state"),
    "a module by its whole name": ("import megatron.core.utils\nmegatron.core.utils", "module megatron.core.utils"),
    "a method": ("GPTModel.forward", f"function {GPT}.forward"),
    "an object that is made": ("GPTModel()", f"instance {GPT}"),
    "a part of an object": ("GPTModel().decoder", f"instance {BLOCK}"),
    "an item of a list of modules": ("GPTModel().decoder.layers[0]", f"instance {LAYER}"),
    "the class of an object": ("GPTModel().__class__", f"class {GPT}"),
    "`type` of an object": ("type(GPTModel())", f"class {GPT}"),
    "what `getattr` names": ('getattr(GPTModel(), "decoder")', f"instance {BLOCK}"),
    "what `import_module` names": ('import_module("megatron.core.utils")', "module megatron.core.utils"),
    "an entry of sys.modules": ('import sys\nsys.modules["megatron.core.utils"]', "module megatron.core.utils"),
    "one of two": ("GPTModel if x else ps", f"class {GPT}, module megatron.core.parallel_state"),
    "the first of a pair": ("a, b = GPTModel, ps\na", f"class {GPT}"),
    "an item by its key": ('d = {"x": GPTModel, "y": ps}\nd["y"]', "module megatron.core.parallel_state"),
    "what a loop runs over": ("for one in [GPTModel]:\n    one", f"class {GPT}"),
    "what a comprehension runs over": ("[one() for one in [GPTModel]][0]", f"instance {GPT}"),
    "a text that is put together": ('w = "core"\nf"megatron.{w}"', "text megatron.core"),
    "a text that is added up": ('"megatron" + ".core"', "text megatron.core"),
    "an annotation": ("def f(m: GPTModel):\n    m.decoder", f"instance {BLOCK}"),
    "an annotation in a text": ('def f(m: "GPTModel"):\n    m', f"instance {GPT}"),
    "one of what an annotation allows": ("def f(m: GPTModel | None):\n    m", f"instance {GPT}"),
    "what `isinstance` leaves": ("def f(m):\n    if isinstance(m, GPTModel):\n        m", f"instance {GPT}"),
    "what an early exit leaves": (
        "def f(m):\n    if not isinstance(m, GPTModel):\n        return\n    m",
        f"instance {GPT}",
    ),
    "what a caller gives": ("def f(m):\n    return m.decoder\nf(GPTModel())", f"instance {BLOCK}"),
    "what a function gives back": ("def f():\n    return GPTModel()\nf()", f"instance {GPT}"),
    "what a function gives back of what it is given": ("def f(m):\n    return m\nf(GPTModel())", f"instance {GPT}"),
    "the last assignment": ("x = GPTModel\nx = ps\nx", "module megatron.core.parallel_state"),
    "what both branches may leave": (
        "if y:\n    x = GPTModel\nelse:\n    x = ps\nx",
        f"module megatron.core.parallel_state, class {GPT}",
    ),
    "the branch it stands in": (
        "if y:\n    x = GPTModel\nelse:\n    x = ps\n    x",
        "module megatron.core.parallel_state",
    ),
    "not the other branch": ("x = GPTModel\nif y:\n    x = ps\nelse:\n    x", f"class {GPT}"),
    "a base's method": ("class Mine(GPTModel):\n    pass\nMine().forward", f"function {GPT}.forward"),
    "its own method": ("class Mine(GPTModel):\n    def forward(self): ...\nMine().forward", "function a.Mine.forward"),
    "what `self` keeps": (
        "class Mine:\n    def __init__(self):\n        self.m = GPTModel()\nMine().m",
        f"instance {GPT}",
    ),
    "`super()`": ("class Mine(GPTModel):\n    def f(self):\n        super().forward", f"function {GPT}.forward"),
    "what is not known": ("def f(m):\n    m.decoder", ""),
    "another library's": ("import torch\ntorch.nn.Linear", "other torch.nn.Linear"),
    "a name that leads back to itself": ("x = x.y\nx.y", ""),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_what_an_expression_is(case: str) -> None:
    code, expected = EXPRESSIONS[case]
    names = names_of(HEAD + code + "\n")
    values = names.settled(names.of(last_expression(names)))
    assert ", ".join(f"{value.kind} {value.name}" for value in values) == expected


def test_names_of_other_files() -> None:
    files = {
        "pkg/__init__.py": "from .inner import *\nfrom . import inner\n",
        "pkg/inner.py": "from megatron.core.models.gpt import GPTModel as Model\n",
        "pkg/use.py": "from pkg import Model\nfrom . import inner\n[Model, inner.Model]\n",
        "other/inner.py": "Model = 1\n",
    }
    names = names_of(files)
    both = last_expression(names, "pkg/use.py").elts
    assert [[value.name for value in names.of(one)] for one in both] == [[GPT], [GPT]]


def test_a_test_tells_nothing_of_what_a_function_is_given() -> None:
    files = {"a.py": "def f(m):\n    m\n", "tests/test_a.py": "from a import f\nf(object())\n"}
    names = names_of(files)
    assert names.settled(names.of(last_expression(names))) == ()


def test_the_order_of_questions_does_not_matter() -> None:
    code = HEAD + "def f(n):\n    return g(n)\ndef g(n):\n    return f(n) if n else GPTModel()\nf(1)\ng(2)\n"
    answers = []
    for backwards in (False, True):
        names = names_of(code)
        module = names.index.module("a.py")
        assert module is not None
        calls = sorted(module.calls, key=lambda call: call.lineno, reverse=backwards)
        told = {call.lineno: sorted(value.name for value in names.of(call)) for call in calls}
        answers.append(told)
    assert answers[0] == answers[1]
    assert answers[0][7] == [GPT]
