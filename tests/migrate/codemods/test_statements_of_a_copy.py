"""The lines of each statement of a definition, by which a copy of a function of Megatron is told from it."""

import ast
import textwrap

import pytest

from mcore_unpatch.codemods.fingerprints.compare import parts


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("x = 1", [(2, 2)]),
        ("x = (\n    1,\n)", [(2, 4)]),
        ('"""Text."""\nx = 1', [(3, 3)]),
        ("if a:\n    b()", [(2, 2), (3, 3)]),
        ("if (\n    a\n    and b\n):\n    c()\nelse:\n    d()", [(2, 5), (6, 6), (8, 8)]),
        ("for a in b(\n    1,\n):\n    c()", [(2, 4), (5, 5)]),
        ("if a: b()", [(2, 2), (2, 2)]),
        ("if a:\n    @b\n    def c():\n        d()", [(2, 2), (4, 4), (5, 5)]),
        ("try:\n    a()\nexcept (\n    B,\n):\n    c()\nfinally:\n    d()", [(2, 2), (3, 3), (7, 7), (9, 9)]),
        ("with a() as b, \\\n    c():\n    d()", [(2, 3), (4, 4)]),
        ("match a:\n    case 1:\n        b()\n    case _:\n        c()", [(2, 2), (4, 4), (6, 6)]),
    ],
)
def test_the_lines_of_a_statement_and_of_the_head_of_a_compound_one(body: str, lines: list[tuple[int, int]]) -> None:
    (function,) = ast.parse(f"def f():\n{textwrap.indent(body, '    ')}\n").body
    head, *found = parts(function, "verl")
    assert (head.first, head.last) == (1, 1)
    assert [(one.first, one.last) for one in found] == lines
