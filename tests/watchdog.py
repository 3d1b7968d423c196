"""Ends a test that hangs, with the stacks of all its threads, and lets one go on that is only slow."""

import faulthandler
import threading
import time
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from limits import LOOK, Countdown, patience


class Watchdog:
    """Puts off the end that `faulthandler_timeout` sets to a test, for as long as the machine is loaded."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit = float(config.getini("faulthandler_timeout") or 0)
        self._exit = bool(config.getini("faulthandler_exit_on_timeout"))
        self._stash = config.stash
        self._lock = threading.Lock()
        self._countdown: Countdown | None = None
        if self._limit:
            threading.Thread(target=self._watch, daemon=True).start()

    @pytest.hookimpl(wrapper=True, trylast=True)  # inside of pytest's own wrapper, which sets and cancels the end
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._countdown = Countdown(self._limit)
        try:
            return (yield)
        finally:
            with self._lock:
                self._countdown = None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK)
            with self._lock:
                if self._countdown is not None:
                    end, stderr = patience(self._countdown.left()), self._stash[fault_handler_stderr_fd_key]
                    faulthandler.dump_traceback_later(max(0.1, end), file=stderr, exit=self._exit)
