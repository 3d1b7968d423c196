"""The pieces that a migration is made of, one by one: statements, comments above them, words in files."""

import ast
import re
from pathlib import Path

import pytest

from mcore_unpatch.editing.edits import Edit, Repository, in_order, splice
from mcore_unpatch.editing.placing import unified
from mcore_unpatch.editing.source import Source
from mcore_unpatch.migrate.run import too_old_python
from mcore_unpatch.scanner.sources.parsed import Parsed

TEXT = """\
# the head of the file
import a
# first
# second
@wrapped
def f():
    x = 1; y = 2  # why
    z = [
        1,
    ]
"""


def source(text: str = TEXT, encoding: str = "utf-8") -> Source:
    return Source("f.py", text.encode(encoding), Parsed())


def test_statements_and_the_comments_above_them() -> None:
    whole = source()
    first, function = whole.tree.body
    assert isinstance(function, ast.FunctionDef)
    assert [whole.first_with_comments(node) for node in (first, function)] == [2, 3]
    assert [whole.owns_lines(node) for node in (first, function, *function.body)] == [True, True, False, False, True]
    assert whole.indentation(function.body[0]) == "    "
    assert [whole.line(number) for number in (1, 7)] == ["# the head of the file", "    x = 1; y = 2  # why"]


@pytest.mark.parametrize(
    ("above", "first"),
    [
        ("", 1),
        ("# head\n", 2),
        ("# head\n# more\n", 3),
        ("# head\n# more\n# and more\n", 4),
        ("# head\n\n", 3),
        ("# head\n\n# own\n", 3),
        ("\n# own\n", 2),
        ("\n# own\n# more\n", 2),
        ("y = 2\n# own\n", 2),
        ("y = 2  # why\n", 2),
        ("# head\n@ours\n", 2),
        ("\n# own\n@ours\n@theirs\n", 2),
    ],
)
def test_the_head_of_a_file_is_nobody_s_comment(above: str, first: int) -> None:
    whole = source(f"{above}def f(): ...\n")
    assert whole.first_with_comments(whole.tree.body[-1]) == first


def test_a_byte_order_mark_stays_where_it_is() -> None:
    whole = source("x = 1\ny = 2\n", "utf-8-sig")
    assert whole.line(1) == "x = 1"
    assert [(span.start, span.end) for span in (whole.line_span(1, 1), whole.line_span(2, 2))] == [(3, 9), (9, 15)]
    assert whole.line_span(1, 5).end == 15


LATIN = "# -*- coding: latin-1 -*-\n"
PLACES = {  # a file: how its lines end, its encoding, and the bytes of `here`, found by its place in the tree
    b"here = 1\n": ("\n", "utf-8"),
    b"\xef\xbb\xbfhere = 1\r\n": ("\r\n", "utf-8"),
    b"x = 1\rhere = 2\r": ("\r", "utf-8"),
    b"x = 1\r\nhere = 2\n": ("\r\n", "utf-8"),
    b"here = 1": ("\n", "utf-8"),
    'x = "\u00e9"; here = 1\n'.encode(): ("\n", "utf-8"),
    f'{LATIN}x = "\u00e9"; here = 1\n'.encode("latin-1"): ("\n", "iso-8859-1"),
    f'{LATIN}x = "e"; here = 1\n'.encode("latin-1"): ("\n", "iso-8859-1"),
    f'#!/bin/x\n{LATIN}x = "\u00e9"; here = 1\n'.encode("latin-1"): ("\n", "iso-8859-1"),
    '# coding: utf-8\nx = "\U0001f600"; here = 1\n'.encode(): ("\n", "utf-8"),
    b"if x:\n\there = 1\n": ("\n", "utf-8"),
}


@pytest.mark.parametrize("data", PLACES)
def test_bytes_of_a_name(data: bytes) -> None:
    whole = Source("f.py", data)
    assert (whole.newline, whole.encoding) == PLACES[data]
    (here,) = (node for node in whole.every(ast.Name) if node.id == "here")
    assert whole.span(here).start == data.index(b"here")
    assert (whole.text(here), whole.mentions["here"]) == ("here", [here])
    assert whole.encode("a\n\u00e9") == f"a{whole.newline}\u00e9".encode(whole.encoding)
    assert whole.function_of(here) is None


def test_every_list_of_statements() -> None:
    whole = Source(
        "a.py",
        b"if a:\n    b\nelse:\n    c\nfor d in e:\n    f\nelse:\n    g\n"
        b"try:\n    h\nexcept i:\n    j\nelse:\n    k\nfinally:\n    l\n",
    )
    firsts = [ast.unparse(suite[0]) for suite in whole.home.values()]
    assert sorted(first for first in firsts if len(first) == 1) == list("bcfghjkl")


def edit(start: int, end: int, replacement: bytes = b"") -> Edit:
    return Edit("f.py", "MCU501", "exact", start, end, replacement, "title")


def test_edits_by_position() -> None:
    """What is put in before something comes before what replaces it, whoever asked first."""
    given = [edit(4, 5), edit(2, 4, b"X"), edit(2, 2, b"I"), edit(2, 2, b"J")]
    assert [(one.start, one.end, one.replacement) for one in in_order(given)] == [
        (2, 2, b"I"),
        (2, 2, b"J"),
        (2, 4, b"X"),
        (4, 5, b""),
    ]
    assert splice(b"abcdef", given) == b"abIJXf"
    for wrong in ([edit(0, 3), edit(2, 4)], [edit(0, 7)], [edit(3, 2)]):
        with pytest.raises(
            ValueError, match=r"^f.py: the edit of MCU501 at bytes \d-\d of 6 overlaps another or is out"
        ):
            splice(b"abcdef", wrong)


def test_which_files_say_a_word() -> None:
    texts = {"a.py": b"core = 1", "tests/test_a.py": b"score()", "b.py": b"(", "c.txt": b"core", "d.py": b"core ("}
    whole = Repository(list(texts), lambda _: True, texts.__getitem__)

    def paths(word: str | re.Pattern[bytes], **given: bool) -> list[str]:
        return [one.path for one in whole.sources_saying(word, **given)]

    assert paths("core") == ["a.py", "tests/test_a.py"]  # one that is no Python says nothing
    assert paths("core", tests=False) == ["a.py"]
    assert paths(re.compile(rb"\bcore\b")) == ["a.py"]
    assert [whole.named_elsewhere("core", path) for path in ("a.py", "c.txt")] == [True, True]
    assert not whole.named_elsewhere("score", "tests/test_a.py")
    assert (whole.readable("c.txt"), whole.readable("b.py")) == (None, None)


@pytest.mark.parametrize(
    ("said", "is_older"),
    [(">=3.6", True), (">=3.11", True), (">=3.12", False), ("==3.6.*", True), (">=3.10,<4", True), ("^3.10", False)],
)
def test_the_python_that_a_project_allows(tmp_path: Path, said: str, is_older: bool) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "pyproject.toml").write_text(f'[project]\nrequires-python = "{said}"\n')
    assert too_old_python(tmp_path / "inner", tmp_path) == (f"pyproject.toml says Python {said}" if is_older else "")
    assert (too_old_python(tmp_path, tmp_path, 11) == "") is (not is_older or "3.11" in said)


def test_the_nearest_project_file_counts_and_none_above_the_repository(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.6"\n')
    assert too_old_python(top / "a" / "b", top) == ""
    (top / "a" / "setup.cfg").write_bytes(b"# \xff\npython_requires = >=3.6\n")  # not in UTF-8: nothing
    (top / "a" / "setup.py").symlink_to(top.parent / "pyproject.toml")
    (top / "pyproject.toml").write_text('[project]\nrequires-python = "of any kind"\n# requires-python = ">=3.5"\n')
    (top / "setup.cfg").write_text("[options]\npython_requires = >=3.7\n")
    assert too_old_python(top / "a" / "b", top) == "setup.cfg says Python >=3.7"
    (top / "a" / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.8"\n')
    assert too_old_python(top / "a" / "b", top) == "a/pyproject.toml says Python >=3.8"
    assert too_old_python(top, top) == "setup.cfg says Python >=3.7"


def test_the_names_in_a_diff() -> None:
    """A name with a space ends with a tab, as git writes it: else its end would not be known."""
    assert unified("a.py", b"x\n", b"y\n").splitlines()[:2] == [b"--- a/a.py", b"+++ b/a.py"]
    assert unified("a b.py", b"x\n", b"y\n").splitlines()[:2] == [b"--- a/a b.py\t", b"+++ b/a b.py\t"]
    assert unified("a.py", b"x", b"y").endswith(b"-x\n\\ No newline at end of file\n+y\n\\ No newline at end of file\n")
    assert unified("a.py", b"x\n", b"x\n") == b""
