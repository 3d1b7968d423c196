"""The schema of the configuration that editors read says what the reader takes."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit

from mcore_unpatch.errors import UsageError
from mcore_unpatch.report.lines import OutputFormat
from mcore_unpatch.repository import config

FILE = Path(__file__).parents[3] / "docs" / "unpatch.schema.json"
VALUES = (["a"], [], "0.19", 2, 0, -1, True, 1.5, [1], {"a": 1})

if not FILE.is_file():
    pytest.skip("the schema is part of a checkout", allow_module_level=True)
SCHEMA: dict[str, Any] = json.loads(FILE.read_text())


def reads(folder: Path, table: dict[str, Any]) -> bool:
    """Whether the reader takes a table."""
    (folder / "pyproject.toml").write_text(tomlkit.dumps({"tool": {"unpatch": table}}))
    try:
        return config.load(folder).values == table
    except UsageError:
        return False


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert all(setting["description"] for setting in SCHEMA["properties"].values())


def test_the_keys_are_those_that_the_reader_knows(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.unpatch]\nnonsense = "x"\n')
    with pytest.raises(UsageError) as error:
        config.load(tmp_path)
    _, _, known = str(error.value).partition("use one of ")
    assert set(re.findall(r"[\w-]+", known)) == SCHEMA["properties"].keys()


@pytest.mark.parametrize("key", SCHEMA["properties"])
def test_both_take_the_same_values(key: str, tmp_path: Path) -> None:
    valid = jsonschema.Draft7Validator(SCHEMA)
    values = [*map(str, OutputFormat), ["a"], 2, True] if key == "output-format" else VALUES
    for value in values:
        assert reads(tmp_path, {key: value}) == valid.is_valid({key: value}), (key, value)


def test_the_formats_are_those_of_the_command() -> None:
    assert SCHEMA["properties"]["output-format"]["enum"] == [*OutputFormat]
