"""One Megatron by each of its names: what it is called, the releases that are judged for, in words, and how sure."""

import ast

import pytest

from mcore_unpatch.judge.changed import _is_same
from mcore_unpatch.library.syntax import annotated, default_text
from mcore_unpatch.stacks.revision import Revision, of_specifiers

# Certain, a range, to be settled by the user.
Row = tuple[str, str, str, str]


def row(revision: Revision | None) -> Row | None:
    if revision is None:
        return None
    flags = {"certain": revision.certain, "range": revision.is_range, "ask": bool(revision.settle)}
    return revision.name, " ".join(revision.releases), revision.words, " ".join(name for name in flags if flags[name])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("==0.18", ("0.18.0", "0.18.0", "", "certain")),
        ("==0.18.0", ("0.18.0", "0.18.0", "", "certain")),
        ("===0.18.0", ("0.18.0", "0.18.0", "", "certain")),
        ("==0.18.*", ("==0.18.*", "0.18.0 0.18.2", "", "")),
        ("~=0.18.0", ("~=0.18.0", "0.18.0 0.18.2", "", "")),
        ("~=0.18", ("~=0.18", "0.18.0 0.19.2", "", "range")),
        (">=0.15,<0.17", (">=0.15,<0.17", "0.15.0 0.16.1", "", "range")),
        (">= 0.18.0, <=0.18.2 ,", (">=0.18.0,<=0.18.2", "0.18.0 0.18.2", "", "")),
        ("<=0.18.0,>=0.18.0", ("<=0.18.0,>=0.18.0", "0.18.0", "", "certain")),
        (">=0.18", (">=0.18", "0.18.0 0.19.2", "", "range")),
        ("<0.17", ("<0.17", "0.16.1", "", "range")),
        ("!=0.18.0", ("!=0.18.0", "0.19.2", "", "range")),
        (">=9", (">=9", "9.0.0", "", "range")),
        ("==0.18.0,!=0.17.0", ("==0.18.0,!=0.17.0", "0.18.0", "", "certain")),
        (">=0.8,<0.11", (">=0.8,<0.11", "0.12.0", "older than 0.12.0, the oldest known", "")),
        ("", None),
        ("wrong", None),
    ],
)
def test_a_requirement(text: str, expected: Row | None) -> None:
    assert row(of_specifiers(text)) == expected


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("0", "0.0", True),
        ("1", "2", False),
        ("True", "1", False),
        ("None", "None", True),
        ("None", "0", False),
        ("'a'", "'b'", False),
        ("", "1", True),
        ("1", "", True),
    ],
)
def test_two_defaults_of_one_value(was: str, now: str, same: bool) -> None:
    assert _is_same(was, now) is same


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1", "=1"), ("None", "=None"), ("'name'", "='name'"), ("'two words'", "="), ("b'x'", "="), ("f()", "=")],
)
def test_a_default_as_a_parameter_list_shows_it(text: str, shown: str) -> None:
    assert default_text(ast.parse(text, mode="eval").body) == shown
    assert default_text(None) == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.B", ["a.B"]),
        ("A | None", ["A"]),
        ("'A | B'", ["A", "B"]),
        ("'not ('", []),
        ("Optional[A]", ["A"]),
        ("typing.Union[A, b.C]", ["A", "b.C"]),
        ("Other[A]", ["Other"]),
        ("1", []),
    ],
)
def test_the_classes_that_an_annotation_names(text: str, names: list[str]) -> None:
    assert annotated(ast.parse(text, mode="eval").body) == names
    assert annotated(None) == []
