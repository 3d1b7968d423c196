"""What an option is where nobody passes it: nothing is written, downloaded or let through unasked."""

from pathlib import Path

from command import commands

# All others are off, or not given.
OTHERWISE = {
    "init path": Path(),
    "stacks path": Path(),
    "stacks --output-format": "text",
    "migrate --output-format": "text",
    "undo path": Path(),
    "audit --repo": Path(),
    "verify --tp": 1,
    "verify --cp": 1,
}


def test_every_option_of_every_command() -> None:
    for name, command in commands().items():
        for parameter in command.params:
            option = f"{name} {parameter.opts[0]}"
            given = getattr(parameter.default, "value", parameter.default)
            expected = OTHERWISE.get(option, False if getattr(parameter, "is_flag", False) else None)
            assert (option, given) == (option, expected)
            assert not parameter.required or parameter.param_type_name == "argument", option
