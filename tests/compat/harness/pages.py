"""The functions of a page of the documentation, as they stand there."""

import re
from pathlib import Path
from typing import Any

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
