"""What to write in place of a name that is gone."""

from mcore_unpatch.judge.instead import nth
from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of


def test_what_took_the_place_of_a_name_is_told_by_its_text() -> None:
    before = b'''
from dataclasses import dataclass
def go(a):
    """Deprecated: use `walk` instead."""
    return a + 1
@dataclass
class Config:
    fast: bool = False
    """DEPRECATED and replaced by speed."""
'''
    after = b"""
def walk(a):
    return [a]
class Config:
    speed: int = 1
"""
    models = [
        build(LIBRARY, label, {"megatron/core/__init__.py": b"", "megatron/core/work.py": text}.items())
        for label, text in (("0.30.0", before), ("0.31.0", after))
    ]
    text = b"from megatron.core import work\nprint(work.go, work.Config.fast)\n"
    uses = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), *models).affected
    assert [use.instead for use in uses] == [
        "`work.walk` is the closest match",
        "`Config.speed` is the closest match",
    ]


def test_places_as_words() -> None:
    places = {
        0: "first",
        5: "sixth",
        6: "7th",
        10: "11th",
        12: "13th",
        20: "21st",
        21: "22nd",
        22: "23rd",
        110: "111th",
    }
    assert {index: nth(index) for index in places} == places
