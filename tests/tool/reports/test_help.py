"""`--help` explains every argument and option of every command."""

import pytest
from command import commands

COMMANDS = commands()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_parameter_says_what_it_is_for(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [parameter.name for parameter in command.params if not parameter.help] == []
