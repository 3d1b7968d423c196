"""Ctrl-C and friends while files are written: noted when they come, acted on between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_committed = False


def commit() -> None:
    """What was to be written is written: from here on Ctrl-C can stop nothing, and must not say that it did."""
    global _committed
    _committed = True


@contextmanager
def until_committed() -> Iterator[None]:
    """Around a whole command: Ctrl-C ends it as ever, and after `commit` lets it tell what it has done.

    A time-out (SIGTERM) ends it as well, and what it keeps in temporary folders goes with it.
    """
    global _committed
    _committed = False

    def handle(number: int, frame: FrameType | None) -> None:
        if _committed:
            return
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        if not _committed:  # else the process is about to end, and has to end well
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Hold signals back; the function given raises what the first of them asks for."""
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    def check() -> None:
        if received:
            if received[0] == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + received[0])

    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield check
        return
    previous = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield check
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
