"""`--help` explains every argument and option of every command."""

from typing import Any

import pytest
import typer.main

from mcore_unpatch.cli import app

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_parameter_says_what_it_is_for(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [parameter.name for parameter in command.params if not parameter.help] == []
