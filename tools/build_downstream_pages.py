"""Write what docs/ says of each codemod: the end of the page of its framework, or a section of `docs/rewrites.md`.

python tools/build_downstream_pages.py
"""

from __future__ import annotations

import re
from pathlib import Path

from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.codemods.registry import own

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- From here on: written by tools/build_downstream_pages.py from the codemod. -->\n"
INTRO = """# What migrate rewrites

For those who read a diff of `unpatch migrate`: each form that it knows, before and after, when it is applied, and what
to check by hand. `unpatch explain NAME` prints a section. What it does for a framework is on the page of
that framework.
"""


def pages() -> dict[str, str]:
    """Every page that has a part made from codemods, by its path below docs/; what people wrote there stays."""
    made = {"rewrites.md": INTRO}
    for codemod in own():
        page = f"frameworks/{codemod.name}.md"
        if (DOCS / page).is_file():
            before = (DOCS / page).read_text(encoding="utf-8").partition(MARK)[0]
            made[page] = f"{before}{MARK}\n{_section(codemod, 'Migrating')}"
        else:
            made["rewrites.md"] += f"\n{_section(codemod, codemod.title)}".replace("](../", "](")
    return made


def _section(codemod: Codemod, title: str) -> str:
    """The page of a codemod, one level down."""
    _, _, body = codemod.page().partition("\n")
    return f"## {title}\n{re.sub('^## ', '### ', body, flags=re.MULTILINE)}"


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
