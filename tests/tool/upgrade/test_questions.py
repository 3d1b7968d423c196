"""What the judge and the merge ask of code, one question at a time."""

import ast
from typing import Any

import pytest

from mcore_unpatch.commands.rules import _body
from mcore_unpatch.judge.demands import _imports_of
from mcore_unpatch.judge.mocks import may_create
from mcore_unpatch.library.surroundings import _plain
from mcore_unpatch.survey.unread import _reads, _takes_all
from mcore_unpatch.upgrade.items import APPLY, RAISE, Item
from mcore_unpatch.upgrade.merge import _free_names, _is_code, _merged
from mcore_unpatch.upgrade.report import _together


def test_the_imports_that_run_with_a_file() -> None:
    text = """\
import a
if x:
    import b
else:
    from c import d
try:
    import e
except ImportError:
    import f
class G:
    import g
    def method(self):
        import h
def function():
    import i
if TYPE_CHECKING:
    import j
else:
    import k
if typing.TYPE_CHECKING:
    import l
"""
    said = sorted(ast.unparse(node) for node in _imports_of(ast.parse(text)))
    assert said == ["from c import d", *(f"import {name}" for name in "abefgk")]


@pytest.mark.parametrize(
    ("arguments", "may"),
    [
        ("", False),
        ("create=True", True),
        ("create=False", False),
        ("raising=False", True),
        ("raising=True", False),
        ("create=flag", True),
        ("**more", True),
        ("other=True", False),
    ],
)
def test_whether_a_mock_may_make_a_name(arguments: str, may: bool) -> None:
    assert may_create(ast.parse(f"patch({arguments})", mode="eval").body) is may


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("def f(a, *b, c=d, **e):\n    return a + b + g(c)", {"d", "g"}),
        ("def f():\n    import a.b, c as x\n    from d import e\n    return a, c, x, d, e", {"c", "d"}),
        ("def f():\n    def inner(): ...\n    class Own: ...\n    return inner, Own, print", set()),
        ("def f():\n    for x in y:\n        z = x\n    return z", {"y"}),
    ],
)
def test_the_names_that_a_function_takes_from_outside(function: str, names: set[str]) -> None:
    assert _free_names(function) == names


def test_a_merge_of_three_texts() -> None:
    assert _merged("a\nb\nx\ny\nc", "a\nx\ny\nc", "a\nx\ny\nd") == (
        "a\nb\nx\ny\nd\n"
    )  # what both changed, without a last line's end
    conflict = _merged("a\nb\n", "a\n", "a\nc\n")
    assert conflict == "a\n<<<<<<< yours\nb\n||||||| base\n=======\nc\n>>>>>>> upstream\n"
    assert [line for line in conflict.splitlines(keepends=True) if _is_code(line)] == ["a\n", "b\n", "c\n"]
    assert not _is_code("  \n")


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("self.config.flag", "self.config.flag"),
        ("not self.config.flag", "not self.config.flag"),
        ("self.config.a and self.config.b", ""),
        ("self.config.get(1)", ""),
        ("self.config.rows[0]", ""),
        ("self.config.a == self.config.b", ""),
        ("other", ""),
        (f"self.config.{'x' * 48}", f"self.config.{'x' * 48}"),
        (f"self.config.{'x' * 49}", ""),
    ],
)
def test_a_condition_on_one_setting(test: str, said: str) -> None:
    assert _plain(ast.parse(test, mode="eval").body) == said


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        (b"from megatron.core.utils import *", True),
        (b"from megatron.core.utils import (\n    *\n)", True),
        (b"from megatron.core import utils\nvars(utils)", True),
        (b"from megatron.core import utils\nutils.__dict__", True),
        (b"from megatron.core import utils as u\nu.__dict__", True),
        (b"import megatron.core.utils\nu = megatron.core.utils\nvars(u)", True),
        (b"from megatron.core import utils\ngetattr(utils, name)", True),
        (b"from megatron.core import utils\ngetattr(utils, 'name')", False),
        (b"from megatron.core import utils\nutils.name", False),
        (b"from core.utils import *", False),
        (b"from megatron.core.other import *", False),
    ],
)
def test_a_file_that_takes_all_names_of_a_module(text: bytes, takes: bool) -> None:
    assert _takes_all(text, b"utils") is takes


@pytest.mark.parametrize(
    ("text", "of_module", "of_class"),
    [
        (b"utils.name", True, True),
        (b"utils.name = 1", False, False),
        (b"utils.name == 1", True, True),
        (b"self.name", False, True),
        (b"cls.name", False, True),
        (b"from x import a, name", True, True),
        (b"from x import (\n    a,\n    name,\n)", True, True),
        (b"getattr(x, 'name')", True, True),
        (b"utils.names", False, False),
        (b"name = 1", False, False),
    ],
)
def test_code_that_reads_a_name(text: bytes, of_module: bool, of_class: bool) -> None:
    assert (_reads("m.utils", "name").search(text) is not None) is of_module
    assert (_reads("m.Model", "name").search(text) is not None) is of_class


def test_a_page_for_a_terminal() -> None:
    text = "\nOne\nparagraph.\n- item\n  goes on\n1. step\n# Head\n| a |\n```python\nx  =  1\n\ny\n```\nLast.\n    code"
    assert ["".join(part for part, _ in line) for line in _body(text)] == [
        "",
        "One paragraph.",
        "- item goes on",
        "1. step",
        "# Head",
        "| a |",
        "```python",
        "x  =  1",
        "",
        "y",
        "```",
        "Last.",
        "    code",
        "",
    ]


def test_what_is_told_together() -> None:
    """What is the same in several places is told once; what can be done by a command once for each folder."""

    def item(group: str = RAISE, path: str = "a/m.py", title: str = "t", why: str = "w", **more: Any) -> Item:
        return Item(group, path, 1, title, (why,), **more)

    patch: Any = object()
    first, both = item(), item(path="b/m.py", more=(7, 8))
    apart = [item(title="u"), item(why="v"), item(advice="x"), item(fate=patch), item(fate=patch)]
    by_folder = [item(APPLY, title=name, path=f"{folder}/{name}.py") for folder in "ab" for name in "xy"]
    others = [item(APPLY, why="v"), item(folded="tests")]
    members = [first, both, *apart, *by_folder, *others]
    told = [(one, number) for one, number in _together(members, every=False)]
    same = {id(first): 3, id(by_folder[0]): 1, id(by_folder[2]): 1}
    kept = [first, *apart, by_folder[0], by_folder[2], others[0]]
    assert [(id(one), number) for one, number in told] == [(id(one), same.get(id(one), 0)) for one in kept]
    assert [(id(one), number) for one, number in _together(members, every=True)] == [(id(one), 0) for one in members]
