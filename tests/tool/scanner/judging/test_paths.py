"""A hook fits only where the original is called once, on each way through a replacement, and by that itself."""

import ast

import pytest

from mcore_unpatch.judge.originals import once_on_every_path

ONCE = [
    "return f(x)",
    "y = f(x)\nif y: return y\nreturn 2 * y",
    "if x is None: raise ValueError\nreturn f(x)",
    "with no_grad(): return f(x)",
    "try:\n    y = f(x)\nfinally:\n    done()\nreturn y",
    "for i in x: i.go()\nreturn f(x)",
    "return [f(x)][0]",
    "while True:\n    step()\n    break\nreturn f(x)",
]
NOT = [
    "return x",
    "if x: return f(x)\nreturn f(-x)",  # each of its ways does: said of none of them, it is rare
    "return f(f(x))",
    "if x: return f(x)\nreturn x",
    "if debug: return f(x)\nassert ready\nreturn other(x)",
    "return x and f(x)",
    "return f(x) if x else x",
    "for i in x: f(i)",
    "for i in x: return f(i)",
    "return [f(i) for i in x]",
    "def inside(*a): return f(*a)\nreturn checkpoint(inside, x)",
    "return checkpoint(lambda: f(x), x)",
    "try:\n    return f(x)\nexcept ValueError:\n    return x",
    "match x:\n    case 1: return f(x)",
    "while x: x = f(x)\nreturn x",
    "if x: f(x)\nreturn f(x)",
]


@pytest.mark.parametrize(("body", "once"), [*((one, True) for one in ONCE), *((one, False) for one in NOT)])
def test_paths(body: str, once: bool) -> None:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    [function] = ast.parse(f"def new(x):\n{lines}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert once_on_every_path(function, lambda call: ast.unparse(call.func) == "f") is once
