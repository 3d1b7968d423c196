"""Methods added to Megatron's objects that are left, and why; those that are rewritten are golden pairs."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

HEAD = "import types\nfrom megatron.core.timers import Timers\ndef total(self, *names): return len(names)\n"
INSTALL = "Timers.total_of = total\n"
CALL = "def report(timers): return timers.total_of()\n"


def said(files: dict[str, str]) -> str:
    """Why a file is left."""
    result = migrate({path: text.encode() for path, text in files.items()}, Options(unsafe_fixes=True))
    assert result.changed == set()
    return "\n".join(remark.text for remark in result.plan.remarks)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (HEAD + INSTALL, "nothing in the file calls it"),
        (
            HEAD + INSTALL + "def report(timers): return map(timers.total_of, 'ab')\n",
            "line 5 uses it without calling it",
        ),
        (HEAD + INSTALL + CALL + "def has(timers): return hasattr(timers, 'total_of')\n", "line 6 also refers to it"),
        (HEAD + INSTALL + "class B(Timers):\n    def total_of(self): super().total_of()\n", "line 6 also refers to it"),
        (HEAD + INSTALL + "class B(Timers):\n    def f(self): super().total_of()\n", "uses it without calling it"),
        (HEAD + INSTALL + "def report(timers): timers.total_of(x for x in timers)\n", "with a generator"),
        (HEAD + INSTALL + CALL + "class B:\n    def total_of(self): pass\n", "line 7 also refers to it"),
        (HEAD + INSTALL + "def report(timers): return timers.total_of(timers.total_of())\n", "nests calls of it"),
        (HEAD + INSTALL + CALL + "def other(total): pass\n", "`total` also means something else in this file"),
        (HEAD + INSTALL + CALL + "del total\n", "`total` also means something else in this file"),
        (HEAD + f"x = 1; {INSTALL}" + CALL, "line 4 holds more than one statement"),
        (
            HEAD.replace("def", "@property\ndef", 1) + INSTALL + CALL,
            "line 3 turns it into a property",
        ),
        (
            HEAD + "def patch(timers: Timers, o):\n    timers.total_of = types.MethodType(total, o)\n" + CALL,
            "it is bound to `o`, not to the object it is added to",
        ),
        (
            HEAD + "Timers.total_of = lambda self: 1\n" + CALL,
            "not a function of this file whose first parameter is the object",
        ),
        (
            "from megatron.core.timers import Timers\ndef patch(number):\n    def total(self): return number\n"
            f"    {INSTALL}" + CALL,
            "`total` uses variables of the enclosing function and is called outside of it",
        ),
        (
            "from megatron.core.timers import Timers\ndef patch():\n    import torch as t\n"
            f"    def total(self): return t.ones(2)\n    {INSTALL}" + CALL,
            "`total` uses variables of the enclosing function and is called outside of it",
        ),
        (
            "from megatron.core.timers import Timers\ndef patch():\n    def total(self):\n"
            f"        return '''a\n        b'''\n    {INSTALL}" + CALL,
            "would have to move, and contains a string of several lines",
        ),
    ],
)
def test_what_cannot_be_called_instead_is_left(text: str, because: str) -> None:
    assert because in said({"pkg/a.py": text})


def test_another_file_that_names_it_is_told() -> None:
    text = said({"pkg/a.py": HEAD + INSTALL + CALL, "pkg/b.py": "\ndef f(timers):\n    timers.total_of()\n"})
    assert "Not rewritten: pkg/b.py:3 also refers to it. It is mentioned in pkg/a.py:5, pkg/b.py:3." in text


def test_many_lines_are_counted() -> None:
    others = {"pkg/b.py": "def f(timers):\n" + "    timers.total_of()\n" * 20}
    assert said({"pkg/a.py": HEAD + INSTALL, **others}).endswith("pkg/b.py:9 and 12 more.")


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "Timers.__enter__ = total\n",
        HEAD + INSTALL + CALL + "CODE = 'return self.total_of()'\n",  # perhaps for Megatron's own source
        (
            "from megatron.core.transformer.identity_op import IdentityOp\n"
            "def f(self): pass\nIdentityOp.backward_dw = f\ndef g(op): op.backward_dw()\n"
        ),
    ],
)
def test_what_megatron_may_call_is_not_promised(text: str) -> None:
    assert said({"pkg/a.py": text}) == ""
