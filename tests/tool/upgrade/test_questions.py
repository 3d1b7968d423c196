"""What the judge and the merge ask of code, one question at a time."""

import ast
from typing import Any

import pytest

from mcore_unpatch.judge.mocks import may_create
from mcore_unpatch.library.surroundings import _plain
from mcore_unpatch.upgrade.items import APPLY, RAISE, Item
from mcore_unpatch.upgrade.report import _together


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
