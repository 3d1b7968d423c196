"""A method that a function adds to one object: the plain form is called with the object, every other stays."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

PLAIN = """from types import MethodType

from megatron.core.models.gpt.gpt_model import GPTModel


def adjust(model: GPTModel):
    # the shape
    def _set_shape(self, shapes: list):
        self._split = shapes[0][-1]

    model.set_shape = MethodType(_set_shape, model)
    model.eval()


def exchange(model, shapes):
    model.set_shape(shapes)
    model.set_shape(
        shapes[1:],
    )
"""
AFTER = """from megatron.core.models.gpt.gpt_model import GPTModel


# the shape
def _set_shape(model, shapes: list):
    model._split = shapes[0][-1]


def adjust(model: GPTModel):
    model.eval()


def exchange(model, shapes):
    _set_shape(model, shapes)
    _set_shape(
        model,
        shapes[1:],
    )
"""


def became(code: str, other: str = "") -> str:
    files = {"pkg/m.py": code.encode(), "pkg/other.py": other.encode()}
    return migrate(files, Options(unsafe_fixes=True)).files["pkg/m.py"].decode()


def test_a_method_of_one_object_becomes_a_function() -> None:
    assert became(PLAIN) == AFTER


_CALL = "    model.set_shape(shapes)\n"
_INNER = "    # the shape\n    def _set_shape(self, shapes: list):\n        self._split = shapes[0][-1]\n\n"
STAYS = {
    "passed on": PLAIN.replace("model.set_shape(shapes)\n", "run(model.set_shape, shapes)\n"),
    "asked for by name": PLAIN.replace("model.set_shape(shapes)\n", 'getattr(model, "set_shape")(shapes)\n'),
    "on another object": PLAIN.replace("    model.set_shape(shapes)", "    other.set_shape(shapes)"),
    "under a guard": PLAIN.replace(_CALL, f"    try:\n    {_CALL}    except AttributeError:\n        pass\n"),
    "a name of the function around": PLAIN.replace("shapes[0][-1]", "shapes[0][model.rank]"),
    "another function of that name": PLAIN + "\n\ndef _set_shape():\n    pass\n",
    "another method of that name": PLAIN + "\n\nclass Other:\n    def set_shape(self):\n        pass\n",
    "two objects": PLAIN.replace("    model.eval()", "    model.twin.set_shape = MethodType(_set_shape, model.twin)"),
    "a function of the file": PLAIN.replace(_INNER, "") + "\n\ndef _set_shape(self, shapes): ...\n",
    "nothing else is done": PLAIN.replace("    model.eval()\n", ""),
    "Megatron has it": PLAIN.replace("model.set_shape", "model.set_input_tensor"),
    "called nowhere": PLAIN.partition("\n\ndef exchange")[0] + "\n",
    "a text of several lines": PLAIN.replace("shapes[0][-1]", '"""a\nb"""'),
    "a class": PLAIN.replace("model.set_shape = MethodType(_set_shape, model)", "GPTModel.set_shape = _set_shape"),
}  # fmt: skip


@pytest.mark.parametrize("code", STAYS.values(), ids=STAYS)
def test_every_other_form_stays(code: str) -> None:
    assert code != PLAIN
    assert became(code) == code


def test_a_method_that_another_file_names_stays() -> None:
    assert became(PLAIN, "def f(m):\n    m.set_shape(1)\n") == PLAIN
