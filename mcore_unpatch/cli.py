"""The command `unpatch`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from io import TextIOWrapper
from types import CodeType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mcore_unpatch import commands

# The commands in the order of the help, and the module of each.
_MODULES = {name: name for name in ("init", "scan", "stacks", "check", "upgrade", "pin", "migrate")}
_MODULES |= {"undo": "migrate", "audit": "audit", "verify": "verify"}
_MODULES |= {"rules": "rules", "explain": "rules"}
_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain help: drawing boxes would take longer than everything else
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class _Commands(TyperGroup):
    """Imports a command, and with it all that it needs, when it is called: `unpatch --help` answers at once."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, its own parameters, and the rest of the arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in _MODULES:
            alone = typer.Typer(add_completion=False, **_SETTINGS)
            gc.disable()  # among what is imported there is no garbage
            alone.command(name)(getattr(import_module(_home(name)), name))
            gc.enable()
            command = typer.main.get_command(alone)
        return name, command, rest


def _home(command: str) -> str:
    return f"mcore_unpatch.commands.{_MODULES[command]}"


def _stand_in(command: str) -> Callable[[], None]:
    """A function with the docstring of a command, taken from its compiled module, which is not run."""
    spec: Any = PathFinder.find_spec(_home(command), commands.__path__)
    codes = (code for code in spec.loader.get_code(spec.name).co_consts if isinstance(code, CodeType))

    def stand_in() -> None:
        raise AssertionError("never called")

    if sys.flags.optimize < 2:  # else there are none
        stand_in.__doc__ = next(str(code.co_consts[0]) for code in codes if code.co_name == command)
    return stand_in


app = typer.Typer(
    name="unpatch",
    help="Find every monkey-patch of Megatron Core in a repository, move it to the official hook, keep new ones out.",
    invoke_without_command=True,
    cls=_Commands,
    **_SETTINGS,
)
for _name in _MODULES:
    app.command(_name)(_stand_in(_name))


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"unpatch {version('mcore-unpatch')}")
        raise typer.Exit


@app.callback()
def _app(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Entry point of the console script."""
    atexit.register(gc.freeze)  # what ends with the process is not searched for garbage first
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: else the next file opened would take its place
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open until the end
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names and source that the terminal cannot show
    for number in (signal.SIGTERM, signal.SIGHUP):  # a time-out: what is kept in temporary folders goes with it
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    app()
