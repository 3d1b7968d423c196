"""One Megatron by each of its names: what it is called, the releases that are judged for, in words, and how sure."""

import ast

import pytest

from mcore_unpatch.judge.changed import _is_same
from mcore_unpatch.library.syntax import annotated, default_text
from mcore_unpatch.stacks.revision import Revision, of_reference, of_release, of_specifiers

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
    ("text", "expected"),
    [
        ("v0.18.0", ("0.18.0", "0.18.0", "", "certain")),
        (" 0.17 ", ("0.17", "0.17.1", "the newest is 0.17.1", "certain")),
        ("0.18.0rc1", ("0.18.0rc1", "0.18.0", "before 0.18.0", "")),
        ("0.18.0.dev1", ("0.18.0.dev1", "0.17.1 0.18.0", "between 0.17.1 and 0.18.0", "ask")),
        ("0.18.99", ("0.18.99", "0.18.2 0.19.0", "between 0.18.2 and 0.19.0", "ask")),
        ("0.19.9", ("0.19.9", "0.19.2", "near 0.19.2", "ask")),
        ("0.20", ("0.20", "0.20", "newer than 0.19.2, the newest known", "ask")),
        ("0.11.9", ("0.11.9", "0.12.0", "older than 0.12.0, the oldest known", "")),
        ("0.1", ("0.1", "0.12.0", "older than 0.12.0, the oldest known", "")),
        ("99.0", ("99.0", "99.0", "newer than 0.19.2, the newest known", "ask")),
        ("0.18.0+local", ("0.18.0", "0.18.0", "", "certain")),
        ("0.1.0+mcore0.15", ("0.1.0+mcore0.15", "0.15.3", "built from megatron-core 0.15", "ask")),
        (
            "0.19.0+71e418ea7",
            ("71e418ea", "0.18.0 0.19.0", "main of 2026-06-08, between 0.18.0 and 0.19.0", "ask"),
        ),
        ("x", None),
    ],
)
def test_a_release(text: str, expected: Row | None) -> None:
    assert row(of_release(text)) == expected


@pytest.mark.parametrize(
    ("reference", "repository", "expected"),
    [
        ("core_v0.18.0", "NVIDIA/Megatron-LM", ("0.18.0", "0.18.0", "", "certain")),
        ("refs/tags/core_v0.18.0", "", ("0.18.0", "0.18.0", "", "certain")),
        ("origin/core_v0.18.0", "nvidia/megatron-lm", ("0.18.0", "0.18.0", "", "certain")),
        ("core_v0.18.0", "fork/m", ("fork/m@core_v0.18.0", "0.18.0", "by its name 0.18.0", "ask")),
        ("core_v0.18.0-x", "", ("core_v0.18.0-x", "0.18.0", "by its name 0.18.0", "ask")),
        ("core_v0.18.9", "", ("core_v0.18.9", "0.18.2 0.19.0", "by its name 0.18.2 to 0.19.0", "ask")),
        ("core_r0.18.0", "fork/m", ("fork/m@core_r0.18.0", "0.18.2", "by its name 0.18.2", "ask")),
        ("core_r9.9.0", "fork/m", ("fork/m@core_r9.9.0", "9.9.0", "by its name 9.9.0", "ask")),
        ("main", "fork/m", ("fork/m@main", "", "a fork", "ask")),
        ("v0.1+megatron0.16.0", "f/m", ("f/m@v0.1+megatron0.16.0", "0.16.0", "built from megatron-core 0.16.0", "ask")),
        ("feature", "", ("feature", "", "not a branch or tag that is known", "ask")),
        ("71e418ea7", "", ("71e418ea", "0.18.0 0.19.0", "main of 2026-06-08, between 0.18.0 and 0.19.0", "ask")),
        (
            "71e418ea7",
            "fork/m",
            ("fork/m@71e418ea", "0.18.0 0.19.0", "main of 2026-06-08, between 0.18.0 and 0.19.0", "ask"),
        ),
    ],
)
def test_a_tag_a_branch_or_a_commit(reference: str, repository: str, expected: Row) -> None:
    assert row(of_reference(reference, repository)) == expected


@pytest.mark.parametrize("repository", ["", "fork/m"])
def test_a_commit_that_nobody_knows(repository: str) -> None:
    revision = of_reference("f" * 40, repository)
    assert revision.name == ("fork/m@ffffffff" if repository else "ffffffff")
    assert revision.words.startswith("not among the commits up to 20")
    assert (revision.versions, revision.certain) == ((), False)


def test_no_name_is_the_default_branch() -> None:
    assert row(of_reference("")) == row(of_reference("main")) == row(of_reference("refs/heads/main", ""))
    assert of_reference("").name == "main"


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
