"""The new rooms import nothing of the old ones, and know no library by name."""

import ast
import re
from pathlib import Path

import mcore_unpatch

ROOT = Path(mcore_unpatch.__file__).parent
BELOW = ("mcore_unpatch.code", "mcore_unpatch.library.interface")
LIBRARY = tuple(f"mcore_unpatch.library.{name}" for name in ("interface", "detailed", "signatures", "digests"))
# What each room may import; the words of `say` are imported by none of the others.
MAY_IMPORT = {
    "code": BELOW,
    "patches": (*BELOW, "mcore_unpatch.patches"),
    "effects": ("mcore_unpatch.code", "mcore_unpatch.patches", "mcore_unpatch.effects", *LIBRARY),
    "say": ("mcore_unpatch.say", "mcore_unpatch.effects", *LIBRARY),
}
FILES = sorted(path for room in MAY_IMPORT for path in (ROOT / room).glob("*.py"))
OF_LIBRARY = [ROOT / f"{name.partition('.')[2].replace('.', '/')}.py" for name in LIBRARY]


def test_what_the_rooms_import() -> None:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcore_unpatch"):
                assert f"{node.module}".startswith(MAY_IMPORT[file.parent.name]), (file, node.module)


def test_records_carry_no_prose() -> None:
    """Outside of `say` no text has two words, docstrings, patterns and shapes of code apart."""
    for file in (path for path in FILES if path.parent.name == "effects"):
        tree = ast.parse(file.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        said = [node.value for node in texts if id(node) not in alone and re.search(r"[a-z]{2} [a-z]{2}", node.value)]
        assert said in ([], ["by hand"]), file


def test_no_library_is_known_by_name() -> None:
    said = [
        (file.name, word)
        for file in (*FILES, *OF_LIBRARY)
        for word in re.findall(r"(?i)megatron|mcore(?!_unpatch)", file.read_text())
    ]
    assert said == []


def test_files_are_short() -> None:
    assert [file.name for file in FILES if len(file.read_text().splitlines()) > 400] == []
