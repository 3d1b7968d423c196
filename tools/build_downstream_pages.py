"""Write what docs/ says of each codemod: the end of the page of its framework, or a section of `docs/rewrites.md`.

python tools/build_downstream_pages.py
"""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path

from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.codemods.registry import own

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- From here on: written by tools/build_downstream_pages.py from the codemod. -->\n"
_PAIR = re.compile(r"```python\n(.*?)\n```\n\nbecomes\n\n```python\n(.*?)\n```", re.DOTALL)
INTRO = """# What migrate rewrites

For those who read a diff of `unpatch migrate`: what it knows, before and after, when it is applied, what to check by
hand. `unpatch explain NAME` prints a section with all its examples. What it does for a framework is on the page of that
framework.
"""


def pages() -> dict[str, str]:
    """Every page that has a part made from codemods, by its path below docs/; what people wrote there stays."""
    made = {"rewrites.md": INTRO}
    told: dict[str, str] = {}  # sections of several words that a framework before has too, and where
    for codemod in own():
        page = f"frameworks/{codemod.name}.md"
        if (DOCS / page).is_file():
            before = (DOCS / page).read_text(encoding="utf-8").partition(MARK)[0]
            made[page] = f"{before}{MARK}\n{_once(_section(codemod, 'Migrating'), codemod.name, told)}"
        else:
            made["rewrites.md"] += f"\n{_with_one_example(_section(codemod, codemod.title))}".replace("](../", "](")
    return made


def _section(codemod: Codemod, title: str) -> str:
    """The page of a codemod, one level down."""
    _, _, body = codemod.page().partition("\n")
    return f"## {title}\n{re.sub('^## ', '### ', body, flags=re.MULTILINE)}"


def _once(section: str, name: str, told: dict[str, str]) -> str:
    """A section, with a link for what another framework's page says."""
    parts = re.split(r"(?m)^(?=### )", _with_one_example(section))
    for number, part in enumerate(parts):
        title, _, text = part.partition("\n")
        place = told.setdefault(text.strip(), f"{name}.md#{title.strip('# ').lower().replace(' ', '-')}")
        if not place.startswith(f"{name}."):
            parts[number] = f"{title}\n\nAs for [{place.partition('.')[0]}]({place}).\n\n"
    return "".join(parts)


def _with_one_example(section: str) -> str:
    """Without the other examples, which `unpatch explain` has."""
    first, *others = re.split(r"(?m)^(?=MCU\d+[^\n]*:$)", section)
    if not others:
        return section
    _, heading, rest = others[-1].partition("\n### ")
    return first + _PAIR.sub(_diff, others[0].partition("\n### ")[0]).rstrip("\n") + "\n" + heading + rest


def _diff(pair: re.Match[str]) -> str:
    """Before and after as one diff, as `migrate --diff` shows it."""
    _, _, *lines = unified_diff(pair[1].split("\n"), pair[2].split("\n"), n=2, lineterm="")
    shown = (" ..." if line.startswith("@@") else line for line in lines[1:])
    return "\n".join(["```diff", *(line.rstrip() for line in shown), "```"])


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
