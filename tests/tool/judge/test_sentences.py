"""How a statement reads: what happens, what is raised, then remarks and what to write instead."""

import pytest

from mcore_unpatch.judge.statement import RAISES, Statement


@pytest.mark.parametrize(
    ("trigger", "sentence"),
    [
        ("when the file is run", "`a` is gone: ImportError when the file is run; line 2 expects that; it is now `b`"),
        ("", "`a` is gone; line 2 expects that; it is now `b`"),
    ],
)
def test_remarks_stand_behind_what_is_raised(trigger: str, sentence: str) -> None:
    told = Statement(
        RAISES, "`a` is gone; line 2 expects that", "ImportError", trigger=trigger, instead="it is now `b`"
    )
    assert told.sentence == sentence


def test_what_is_quoted_stays_whole() -> None:
    told = Statement(RAISES, "`f('a; b')` is gone; line `2; 3` too", "KeyError", trigger="when it is called")
    assert told.sentence == "`f('a; b')` is gone: KeyError when it is called; line `2; 3` too"
