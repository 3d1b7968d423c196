"""A handle as a context manager undoes at the end of the outermost block, unless somebody held it before."""

import pytest

from mcore_unpatch.compat.hook.attach import Handle


@pytest.mark.parametrize(("held", "undone"), [(1, True), (2, False), (3, False)])
def test_who_held_it_before_keeps_it(held: int, undone: bool) -> None:
    handle, said = Handle(), []
    handle.on_removal(lambda: said.append("undone"))
    for _ in range(held):
        handle.claim()
    with handle, handle:
        assert not said
    assert said == ["undone"] * undone
    handle.remove()
    assert said == ["undone"]
