"""Statements of code that is cut anywhere are those of the whole, in order and in their blocks."""

import ast
import random
from pathlib import Path

import pytest
from downloads import unpacked

from mcore_unpatch.codemods.fingerprints.normalise import DEEPEST, nesting, parts
from mcore_unpatch.scanner.sources.fragments import Fragment, read


def of(text: str) -> Fragment:
    return read(tuple(text.split("\n")))


def said(text: str) -> list[str]:
    return [ast.unparse(one.node).split("\n")[0] for one in of(text).statements]


# What is cut -> the code, and what is whole in it.
CUT = {
    "a call that begins above": ("        a=1,\n        b=2,\n    )\n    x = f()", ["x = f()"]),
    "a call that ends below": ("    x = f()\n    y = g(\n        a=1,", ["x = f()"]),
    "arguments alone": ("        a=b,\n        c=d,", []),
    "a sum alone": ("        one\n        + two\n        + three", []),
    "a docstring that begins above": ('    of the model.\n    """\n    x = f()', ["x = f()"]),
    "a docstring that ends below": ('    x = f()\n    """Returns\n    the model, once', ["x = f()"]),
    "between docstrings": ('    it is.\n    """\n    x = f()\n\n    """What\n    it is', ["x = f()"]),
    "a condition's other end": ("        x = 1\n    else:\n        y = 2", ["x = 1", "y = 2"]),
    "no Python": ("the quick brown\n    fox", []),
}


@pytest.mark.parametrize(("text", "expected"), CUT.values(), ids=CUT)
def test_cut(text: str, expected: list[str]) -> None:
    assert said(text) == expected


def test_blocks() -> None:
    text = "    if a:\n        b()\n    elif c:\n        d()\n    else:\n        e()\n    try:\n        f()\n"
    text += "    except ValueError:\n        g()\n    finally:\n        h()\n    i()"
    found = [(one.depth, one.block) for one in of(text).statements]
    assert found == [(1, 0), (2, 0), (1, 5), (2, 0), (2, 1), (1, 0), (2, 0), (2, 2), (2, 3), (1, 0)]


def test_a_decorator_is_part_of_what_it_decorates() -> None:
    (one, _) = of("@cache\ndef f():\n    return 1").statements
    assert (one.first, one.last) == (0, 1)


def test_what_cannot_be_read_is_cut() -> None:
    for text in ("x = f(" + "(" * 300 + "\n)", "x = '" + "\\'" * 5000, "  x = 1\n   y = 2"):
        fragment = of(text)
        assert not fragment.statements
        assert fragment.cut


def functions(file: Path) -> list[ast.FunctionDef]:
    found = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.FunctionDef)]
    # The digests have what follows `else:` before what follows `except:`, which stands above it.
    return [one for one in found if not any(isinstance(node, ast.Try) and node.orelse for node in ast.walk(one))]


def test_windows_of_a_release() -> None:
    """Any lines of any function of Megatron: what is read is a part of the function, one after the other."""
    chance = random.Random(7)
    root = unpacked("megatron-core", "0.19.2") / "megatron/core/transformer"
    read_statements = 0
    for file in sorted(root.glob("*.py")):
        lines = file.read_text().split("\n")
        for function in functions(file):
            own = list(zip((part.hash[:4] for part in parts(function, "megatron")), nesting(function), strict=True))
            for _ in range(2 if function.end_lineno - function.lineno > 6 else 0):
                first = chance.randrange(function.lineno, function.end_lineno - 3)
                window = tuple(lines[first : min(first + chance.randrange(4, 20), function.end_lineno)])
                found = [one for one in read(window).statements if not isinstance(one.node, ast.FunctionDef)]
                read_statements += len(found)
                assert is_part(
                    [(one.digest.hex(), one.depth, one.block) for one in found], own, function.col_offset // 4
                )
    assert read_statements > 1000


def is_part(found: list[tuple[str, int, int]], own: list[tuple[str, int]], shift: int) -> bool:
    """In order; heads of functions may be left out."""
    rest = iter(own)
    return all(
        any(digest == known and depth - shift == at % DEEPEST for known, at in rest) for digest, depth, _ in found
    )
