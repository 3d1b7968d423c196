"""Write `docs/rules.md` from the rules themselves.

python tools/build_rules_page.py
"""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.commands.rules import as_markdown
from mcore_unpatch.rules import families, family, rules

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"


def page() -> str:
    """The page as Markdown."""
    parts = [
        "# Rules\n\nMade from `mcore_unpatch/rules.toml` and the codemods; `unpatch explain RULE` prints the same.\n"
    ]
    for prefix, about in families().items():
        if not prefix.startswith("MCU"):  # of a package that happens to be installed
            continue
        parts.append(f"\n## {prefix}: {about}\n")
        for rule in rules().values():
            if family(rule.code) == prefix:
                text = as_markdown(rule).removesuffix(f"\n{rule.link}\n")
                parts.append(f"\n### {rule.code} {rule.name}\n{text}")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
