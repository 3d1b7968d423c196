"""Whether two Megatrons are one."""

from checking import small_release

from mcore_unpatch.commands.upgrade import _same

ONE, OTHER = "def a(): return 1\n", "def a(): return 2\n"


def test_a_megatron_is_known_by_its_label_and_its_code() -> None:
    model = small_release("0.30.0", ONE)
    assert _same(model, model)
    assert _same(model, small_release("0.30.0", ONE))
    assert not _same(model, small_release("0.31.0", ONE))
    assert not _same(model, small_release("0.30.0", OTHER))
    assert not _same(model, small_release("0.30.0", ONE + "def b(): return 1\n"))
    assert not _same(small_release("0.30.0", ONE + "def b(): return 1\n"), model)
