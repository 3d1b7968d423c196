"""How a command ends when something is wrong: a message on stderr and the right exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import ParamSpec

import typer

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository.paths import printable_lines

EXIT_CLEAN, EXIT_FINDINGS, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130
P = ParamSpec("P")


def guarded(command: Callable[P, int]) -> Callable[P, None]:
    """Turn a function that returns an exit code into a command; errors of the user become exit code 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except UsageError as error:
            complain(str(error))
            code = EXIT_ERROR
        except KeyboardInterrupt:
            complain("interrupted")
            code = EXIT_INTERRUPTED
        except typer.Exit:
            raise
        except Exception as error:
            if os.environ.get("MCORE_UNPATCH_DEBUG"):
                raise
            message = f"internal error: {type(error).__name__}: {error}"
            complain(f"{message} (set MCORE_UNPATCH_DEBUG=1 for the traceback, and please report it)")
            code = EXIT_ERROR
        raise typer.Exit(code)

    run.__annotations__["return"] = None
    return run


@contextmanager
def reporting(done: str = "") -> Iterator[None]:
    """Around everything that writes to stdout: a reader that leaves (`| head`) changes nothing in how a command ends.

    Raises `UsageError` where nothing can be written (a full disk); `done` says what has happened all the same.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        raise UsageError(f"{done}the report could not be written: {error.strerror}") from None


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str) -> None:
    """An error on stderr, names in it escaped; whole in a log, to be searched."""
    _tell(f"error: {message}", sys.stderr.isatty())


def note(message: str) -> None:
    """What is no error, in lines of the width of all others."""
    _tell(f"note: {message}", True)


def _tell(message: str, in_lines: bool) -> None:
    text = printable_lines(message)
    with suppress(OSError):  # nobody listens: the exit code says it
        if in_lines:
            from mcore_unpatch.report.lines import wrapped

            text = "\n".join("".join(part for part, _ in line) for line in wrapped(text, 0, hang=2))
        print(text, file=sys.stderr, flush=True)
