"""The modules of the tool import each other in one direction; imports for types and in functions count as well.

Codemods are declared in little time and load what they work with when asked: of theirs, those count that run at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import mcore_unpatch
from mcore_unpatch import codemods

FOLDERS = {
    "mcore_unpatch": Path(str(mcore_unpatch.__file__)).parent,
    "mcore_unpatch.codemods": Path(str(codemods.__file__)).parent,
}
# The table of all rules is made of what the codemods declare.
LATE = ("mcore_unpatch.codemods", "mcore_unpatch.findings.rules")


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *parts]).removesuffix(".__init__")
            if not name.startswith("mcore_unpatch.compat"):
                found[name] = file
    return found


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a module is imported."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def imports(file: Path, late: bool, known: dict[str, Path]) -> set[str]:
    tree = ast.parse(file.read_bytes())
    found: set[str] = set()
    for node in ast.walk(tree) if late else statements(tree.body):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known.keys() or {node.module}
    return found & known.keys()


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    graph = {name: imports(file, not name.startswith(LATE), known) - {name} for name, file in known.items()}
    assert cycle(graph) == []


def test_a_cycle_is_seen() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    known = modules()
    assert "mcore_unpatch.survey.survey" in imports(known["mcore_unpatch.survey.scan"], True, known)
    assert "mcore_unpatch.survey.fixes" not in imports(known["mcore_unpatch.survey.scan"], False, known)
    assert "mcore_unpatch.survey.fixes" in imports(known["mcore_unpatch.survey.scan"], True, known)


def test_no_two_folders_import_each_other() -> None:
    known = modules()
    pairs = {
        (name.split(".")[1], other.split(".")[1])
        for name, file in known.items()
        for other in imports(file, True, known)
        if name.count(".") and other.count(".")
    }
    both = {pair for pair in pairs if pair[::-1] in pairs and pair[0] < pair[1]}
    assert not both


def test_the_tool_reaches_its_codemods_in_one_place() -> None:
    known = modules()
    tool = {name: file for name, file in known.items() if not name.startswith("mcore_unpatch.codemods")}
    reaching = [
        name for name, file in tool.items() if any("codemods" in one for one in imports(file, late=True, known=known))
    ]
    assert reaching == ["mcore_unpatch.rewrites"]
