"""Ctrl-C and friends while files are written: noted when they come, acted on between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
