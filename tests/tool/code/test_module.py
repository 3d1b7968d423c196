"""One walk of a file; files that are hostile, or no Python 3; which file a dotted name means."""

import ast

import pytest
from rooms import found, index_of, names_of

from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.syntax import ancestors, spelled


def test_every_node_has_a_parent_and_a_scope() -> None:
    source = "@d\ndef f(a, b=1, *c, **e):\n    return [x for x in a if (y := x)]\nclass C(B, m=M):\n    z: int = 1\n"
    module = Module("a.py", "a", source.encode())
    for node in ast.walk(module.tree):
        if hasattr(node, "lineno"):
            assert [parent for parent, _ in ancestors(node)][-1] is module.tree
            assert scope_of(node).module is module


def test_where_names_are_bound() -> None:
    source = """
        import a.b as c
        def f(x):
            global g
            g = 1
            def h():
                nonlocal y
                y = 2
            y = 0
            for i, (j, *k) in x: pass
            with open(x) as n: pass
            return [m for m in x if (w := m)]
    """
    module = index_of(source).module("a.py")
    assert module is not None
    inner = module.scope.names["f"][0].node._inner
    assert set(module.scope.names) == {"c", "f", "g"}
    assert set(inner.names) == {"x", "h", "y", "i", "j", "k", "n", "w"}


def test_stores_and_calls_in_the_order_of_the_text() -> None:
    source = "a.b = c.d(1)\nx[0], y.z = f(), 2\nfor q.r in s: t()\nu.v += w()\n"
    module = index_of(source).module("a.py")
    assert module is not None
    assert [ast.unparse(store.target) for store in module.stores] == ["a.b", "x[0]", "y.z", "q.r", "u.v"]
    assert [spelled(call.func) for call in module.calls] == ["c.d", "f", "t", "w"]


DEEP = 3000
HOSTILE = {
    "a long sum": "x = " + " + ".join(["a"] * DEEP),
    "a long chain": "x = a" + ".b" * DEEP + "\n",
    "calls of calls": "x = a" + "()" * DEEP + "\n",
    "brackets": "x = " + "[" * 500 + "]" * 500,
    "nested functions": "".join(" " * n + f"def f{n}():\n" for n in range(90)) + " " * 90 + "pass\n",
    "an elif for each": "if a: pass\n" + "elif a: pass\n" * 900,
    "Python 2": "print 'megatron'\n",
    "a syntax error": "def f(:\n",
    "a null byte": "x = 'megatron'\0\n",
    "no text at all": "",
    "an escape that is none": "x = '\\d'\n",
    "an unknown encoding": "# -*- coding: nothing -*-\nimport megatron\n",
    "a class that derives from itself": "import megatron\nclass A(A):\n    pass\nA().x = A.y\n",
    "imports in a circle": "from a import *\nfrom a import megatron\nmegatron.x = megatron.y\n",
    "functions in a circle": "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nf(g(f)).forward = g\n",
    "a star of nothing": "from megatron import *\nforward.x = y\n",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_do_no_harm(case: str) -> None:
    code = HOSTILE[case] + "\n# megatron\n"
    good = "from megatron.core.models.gpt import GPTModel\nfrom a import x\nGPTModel.forward = lambda self: x\n"
    assert [(patch.path, patch.line) for patch in found({"a.py": code, "b.py": good})] == [("b.py", 3)]


def test_a_file_that_is_no_python_3_is_named() -> None:
    index = index_of({"a.py": "print 'x'\n", "b.py": "x = 1\n"})
    assert index.module("a.py") is None
    assert index.module("b.py") is not None
    assert list(index.unreadable) == ["a.py"]


@pytest.mark.parametrize(
    ("dotted", "near", "expected"),
    [
        ("pkg.inner", "pkg/use.py", "src/pkg/inner.py"),
        ("inner", "src/pkg/use.py", "src/pkg/inner.py"),
        ("inner", "other/use.py", None),
        ("pkg", "other/use.py", "src/pkg/__init__.py"),
        ("os", "pkg/use.py", None),
    ],
)
def test_which_file_a_name_means(dotted: str, near: str, expected: str | None) -> None:
    paths = ["src/pkg/__init__.py", "src/pkg/inner.py", "examples/old/src/pkg/inner.py", "deep/os/x.py"]
    module = names_of(dict.fromkeys(paths, "")).index.find(dotted, near)
    assert (module.path if module is not None else None) == expected
