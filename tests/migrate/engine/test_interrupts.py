"""Ctrl-C and SIGTERM, in this process: when they end a command, when they wait, and who handles them afterwards."""

import signal
import threading
from collections.abc import Iterator

import pytest

from mcore_unpatch.writing.interrupts import commit, deferred, until_committed

BOTH = (signal.SIGINT, signal.SIGTERM)
ALL = (*BOTH, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def mine(*_: object) -> None:
    """A handler of whoever calls."""


def test_a_command_ends_as_ever() -> None:
    for number in ALL:
        signal.signal(number, mine)
    with pytest.raises(KeyboardInterrupt), until_committed():
        signal.raise_signal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(SystemExit) as ended, until_committed():
            signal.raise_signal(number)
        assert ended.value.code == 128 + number
    assert [signal.getsignal(number) for number in ALL] == [mine] * 3


def test_after_the_commit_nothing_ends_it() -> None:
    with until_committed():
        commit()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # the process is about to end, and has to end well
    with pytest.raises(KeyboardInterrupt), until_committed():  # the next command begins anew
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("received", "raised"),
    [((), None), (BOTH, KeyboardInterrupt), (BOTH[::-1], SystemExit)],
    ids=["none", "Ctrl-C first", "SIGTERM first"],
)
def test_signals_wait_for_a_good_moment(received: tuple[int, ...], raised: type[BaseException] | None) -> None:
    signal.signal(signal.SIGINT, mine)
    with deferred() as check:
        for number in received:
            signal.raise_signal(number)
        if raised is None:
            check()
        else:
            with pytest.raises(raised) as ended:
                check()
            assert getattr(ended.value, "code", 143) == 143
    assert signal.getsignal(signal.SIGINT) is mine


def test_another_thread_handles_no_signals() -> None:
    done = []

    def run() -> None:
        with deferred() as check:
            check()
            done.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [before]


def test_a_handler_that_python_does_not_know_becomes_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that C code installed cannot be put back."""
    real, given = signal.signal, []

    def set_handler(number: int, handler: object) -> object:
        given.append(handler)
        real(number, handler)  # type: ignore[arg-type]

    monkeypatch.setattr(signal, "signal", set_handler)
    with until_committed():
        pass
    with deferred():
        pass
    monkeypatch.undo()
    assert given[3:6] == given[9:12] == [signal.SIG_DFL] * 3
