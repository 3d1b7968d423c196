"""How a command ends when something is wrong: a message on stderr and the right exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from mcore_unpatch.errors import UsageError

EXIT_CLEAN, EXIT_FINDINGS, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130
P = ParamSpec("P")


def guarded(command: Callable[P, int]) -> Callable[P, None]:
    """Turn a function that returns an exit code into a command; errors of the user become exit code 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except UsageError as error:
            complain(str(error))
            code = EXIT_ERROR
        except KeyboardInterrupt:
            complain("interrupted")
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            # The reader is gone (`| head`): nothing left to say, and nothing went wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = EXIT_CLEAN
        except typer.Exit:
            raise
        except Exception as error:
            if os.environ.get("MCORE_UNPATCH_DEBUG"):
                raise
            complain(f"internal error: {type(error).__name__}: {error} (set MCORE_UNPATCH_DEBUG=1 for the traceback)")
            code = EXIT_ERROR
        raise typer.Exit(code)

    run.__annotations__["return"] = None
    return run


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"error: {message}", file=sys.stderr)


def note(message: str) -> None:
    """One line on stderr that is no error."""
    print(f"note: {message}", file=sys.stderr)
