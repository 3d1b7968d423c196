"""Every command on a small repository with something for each part of a report: how it ends, and the facts it tells."""

import re
from pathlib import Path
from typing import Any

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch

WHOLE = ("--exclude", "team/broken.py")
STYLES = ("text", "json", "sarif", "github", "gitlab", "html")
TEXT = (Path(__file__).parent / "team.txt").read_text()
TARGET = "--target-mcore 0.19.2 --unsafe-fixes"


@pytest.fixture
def team(tmp_path: Path) -> Path:
    parts = re.split(r"(?m)^### (.+)\n", TEXT)[1:]
    for path, text in zip(parts[::2], parts[1::2], strict=True):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def facts(report: dict[str, Any], kind: str, *names: str) -> list[tuple[Any, ...]]:
    """Some fields of each item of a report, with its place."""
    return [(f"{one['path']}:{one['line']}", *(one[name] for name in names)) for one in report[kind]]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("command", [("scan",), ("upgrade", "--to", "0.19.2")], ids=lambda words: words[0])
def test_every_style_is_written_and_a_file_that_cannot_be_read_is_an_error(
    team: Path, command: tuple[str, ...], style: str
) -> None:
    for more, code in (((), ERROR), (WHOLE, CLEAN)):
        result = unpatch(*command, "--output-format", style, *more, cwd=team)
        assert result.code == code
        assert "team/postprocess.py" in result.out
        assert ("team/broken.py" in result.out + result.err) == (code == ERROR)


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ("scan --quiet", CLEAN),
        ("scan --verbose --select MCU6 --ignore MCU608", CLEAN),
        ("scan --stack 0.17.0", CLEAN),
        ("scan --target-mcore 0.16.1", CLEAN),
        ("stacks", CLEAN),
        ("check", FINDINGS),
        ("check --write-baseline && check", CLEAN),
        ("migrate --check", CLEAN),
        (f"migrate --check {TARGET}", FINDINGS),
        (f"migrate --allow-no-vcs {TARGET} && migrate --check {TARGET}", CLEAN),
        (f"migrate --allow-no-vcs {TARGET} && undo && migrate --check {TARGET}", FINDINGS),
        ("pin --stack 0.18.2 && check --stack 0.18.2", FINDINGS),
        ("upgrade --check --from 0.16.1 --to 0.19.2", FINDINGS),
        ("upgrade --matrix 0.16..0.19.2", CLEAN),
        ("rules && rules MCU6 && rules MCU501", CLEAN),
        ("rules value-haed", ERROR),
    ],
)
def test_how_a_command_ends(team: Path, commands: str, code: int) -> None:
    for command in commands.split(" && "):
        asks = command.startswith(("rules", "stacks", "undo"))
        result = unpatch(*command.split(), *(() if asks else WHOLE), cwd=team)
    assert result.code == code
    assert result.out + result.err


def test_the_facts_of_a_scan(team: Path) -> None:
    found = facts(
        unpatch("scan", "--output-format", "json", cwd=team).json, "findings", "rule", "verdict", "confidence"
    )
    assert found == [
        ("patches/postprocess.patch:3", "MCU608", "keep", "certain"),
        ("team/forward.py:1", "MCU701", "steps", "certain"),
        ("team/forward.py:2", "MCU702", "steps", "certain"),
        ("team/nothing.py:1", "MCU001", "delete", "certain"),
        ("team/patches.py:12", "MCU101", "keep", "certain"),
        ("team/patches.py:14", "MCU603", "keep", "certain"),
        ("team/patches.py:22", "MCU602", "keep", "certain"),
        ("team/postprocess.py:9", "MCU102", "keep", "certain"),
        ("team/postprocess.py:9", "MCU001", "delete", "certain"),
        ("team/value.py:6", "MCU501", "steps", "certain"),
        ("tests/test_team.py:10", "MCU601", "keep", "certain"),
    ]


def test_the_facts_of_an_upgrade(team: Path) -> None:
    report = unpatch("upgrade", "--from", "0.16.1", "--to", "0.19.2", "--all", "--output-format", "json", cwd=team).json
    assert facts(report, "patches", "urgency", "change") == [
        ("team/patches.py:12", "breaks", "signature"),
        ("team/postprocess.py:9", "breaks", "signature"),
        ("tests/test_team.py:10", "breaks", "signature"),
        ("patches/postprocess.patch:3", "different", "signature"),
        ("team/patches.py:14", "different", "signature"),
        ("team/value.py:6", "unnecessary", "unchanged"),
        ("team/patches.py:22", "harmless", "unchanged"),
    ]
    assert facts(report, "uses", "kind", "exception", "when") == [
        ("team/moved.py:1", "raises", "ModuleNotFoundError", "import"),
        ("team/moved.py:4", "raises", "AttributeError", "import"),
        ("team/postprocess.py:10", "raises", "AttributeError", "import"),
    ]


def test_the_facts_of_a_migration(team: Path) -> None:
    arguments = ("--check", *TARGET.split(), *WHOLE, "--output-format", "json")
    report = unpatch("migrate", *arguments, cwd=team).json
    edits = [(edit["path"], edit["before"]["line"], edit["rule"]) for edit in report["edits"]]
    assert edits == [("team/value.py", 1, "MCU501"), ("team/value.py", 6, "MCU501")]
