"""The command `unpatch`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from mcore_unpatch.commands import audit, check, doctor, migrate, pin, rules, scan, stacks, upgrade, verify
from mcore_unpatch.migrate.interrupts import until_committed

app = typer.Typer(
    name="unpatch",
    help="Find every monkey-patch of Megatron Core in a repository, move it to the official hook, keep new ones out.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: drawing boxes would take longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(scan.scan)
app.command()(stacks.stacks)
app.command()(check.check)
app.command()(upgrade.upgrade)
app.command()(pin.pin)
app.command()(migrate.migrate)
app.command()(migrate.undo)
app.command()(audit.audit)
app.command()(doctor.doctor)
app.command()(verify.verify)
app.command("rules")(rules.rules)
app.command()(rules.explain)


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
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: else the next file opened would take its place
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open until the end
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names and source that the terminal cannot show
    with until_committed():
        app()
