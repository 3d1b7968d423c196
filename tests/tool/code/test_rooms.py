"""The new rooms import nothing of the old ones, and know no library by name."""

import ast
import re
from pathlib import Path

import mcore_unpatch

ROOT = Path(mcore_unpatch.__file__).parent
MAY_IMPORT = ("mcore_unpatch.code", "mcore_unpatch.patches", "mcore_unpatch.library.interface")
FILES = sorted(path for room in ("code", "patches") for path in (ROOT / room).glob("*.py"))


def test_what_the_rooms_import() -> None:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcore_unpatch"):
                assert f"{node.module}".startswith(MAY_IMPORT), (file, node.module)
                assert not (file.parent.name == "code" and "patches" in f"{node.module}"), file


def test_no_library_is_known_by_name() -> None:
    said = [
        (file.name, word) for file in FILES for word in re.findall(r"(?i)megatron|mcore(?!_unpatch)", file.read_text())
    ]
    assert said == []


def test_files_are_short() -> None:
    assert [file.name for file in FILES if len(file.read_text().splitlines()) > 400] == []
