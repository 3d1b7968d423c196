"""Python files that belong to no package, and functions of the documentation's pages, as they stand there."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any


def load_file(path: Path) -> ModuleType:
    """Run the file anew, as a module that nobody else sees."""
    spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCS = Path(__file__).parents[3] / "docs"


def blocks_of(page: str) -> list[str]:
    """The Python blocks of `docs/<page>`, without those that a codemod has as its examples."""
    text, _, _ = (DOCS / page).read_text().partition("<!-- From here on: written by")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def from_page(page: str, name: str) -> Any:
    """The function or class called `name`."""
    for block in blocks_of(page):
        if re.search(rf"^(def|class) {name}\b", block, re.MULTILINE):
            scope: dict[str, Any] = {}
            exec(compile(block, page, "exec"), scope)
            return scope[name]
    raise LookupError(f"{page} has no {name}")
