"""Which bytes changes may still take, and what a codemod's author is told of an example that is wrong."""

import re
from dataclasses import replace

import pytest

from mcore_unpatch.codemods import registry
from mcore_unpatch.codemods.changes import Taken
from mcore_unpatch.codemods.testing import check_example
from mcore_unpatch.editing.source import Span

AT = Span(10, 20)


@pytest.mark.parametrize(
    ("path", "span", "free"),
    [
        ("a.py", Span(0, 10), True),
        ("a.py", Span(20, 30), True),
        ("a.py", Span(0, 11), False),
        ("a.py", Span(19, 30), False),
        ("a.py", Span(12, 13), False),
        ("a.py", Span(0, 40), False),
        ("b.py", AT, True),
    ],
)
def test_what_is_taken_is_not_taken_again(path: str, span: Span, free: bool) -> None:
    taken = Taken([])
    assert taken.take([("a.py", AT)])
    assert taken.take([(path, span)]) is free
    assert not taken.take([("a.py", AT)])
    assert taken.take([("c.py", AT), ("c.py", Span(20, 21))])


def test_nothing_is_taken_where_a_part_is_not_free() -> None:
    taken = Taken([])
    assert taken.take([("a.py", AT)])
    assert not taken.take([("b.py", AT), ("a.py", AT)])
    assert taken.take([("b.py", AT)])


def test_a_wrong_example_is_shown_as_a_diff() -> None:
    codemod = next(one for one in registry.codemods() if one.examples and one.examples[0].after)
    example = codemod.examples[0]
    check_example(codemod, example)
    with pytest.raises(
        AssertionError, match=re.escape("migrated to other code:\n--- expected\n+++ migrated\n@@")
    ) as said:
        check_example(codemod, replace(example, after=f"{example.after}\nunused = 3"))
    assert "\n-unused = 3" in str(said.value)
    with pytest.raises(AssertionError, match="is not found in its example"):
        check_example(codemod, replace(example, before="x = 1"))
    with pytest.raises(SyntaxError):
        check_example(codemod, replace(example, after="x = ("))
