"""State of the call that a thread is in: two threads may be in the same model."""

from threading import RLock, get_ident
from typing import Generic, TypeVar

_Value = TypeVar("_Value")

# Held while something shared by calls is looked for and installed, or given up and removed.
INSTALLING = RLock()


class UnderWay(Generic[_Value]):
    """One value per thread, from the beginning of its call to the end.

    The thread's next call replaces what an interrupted one left (PyTorch runs no hook after a KeyboardInterrupt).
    """

    def __init__(self) -> None:
        self._by_thread: dict[int, _Value] = {}

    def __bool__(self) -> bool:
        """Whether this thread is in a call."""
        return get_ident() in self._by_thread

    def begin(self, value: _Value) -> None:
        """Record that this thread enters a call."""
        self._by_thread[get_ident()] = value

    def get(self) -> _Value | None:
        """The value of this thread's call, None outside of one."""
        return self._by_thread.get(get_ident())

    def end(self) -> _Value | None:
        """Record that this thread leaves its call; returns its value."""
        return self._by_thread.pop(get_ident(), None)
