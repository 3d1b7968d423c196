"""Write `docs/rules.md` and the page of each rule in `docs/rules/` from the rules themselves.

python tools/build_rules_page.py
"""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.commands.rules import as_markdown
from mcore_unpatch.findings.rules import Rule, families, family, rules

DOCS = Path(__file__).parents[1] / "docs"


def pages() -> dict[str, str]:
    """Every page by its path below docs/."""
    made = {}
    for rule in (each for group in _groups().values() for each in group):
        text = as_markdown(rule).removesuffix(f"\n{rule.link}\n")
        made[f"rules/{rule.code}.md"] = f"# {rule.code} {rule.name}\n{text}"
    parts = ["# Rules\n\nFor everybody who meets a code in a report. `unpatch explain MCU101` prints the same.\n"]
    for prefix, group in _groups().items():
        rows = "".join(f"| [{rule.code}](rules/{rule.code}.md) | {rule.name} | {rule.summary} |\n" for rule in group)
        parts.append(f"\n## {prefix}: {families()[prefix]}\n\n| rule | name | finds |\n|---|---|---|\n{rows}")
    return {"rules.md": "".join(parts), **made}


def _groups() -> dict[str, list[Rule]]:
    """The rules of this package by family; those of a package that happens to be installed are left out."""
    own = [rule for rule in rules().values() if rule.code.startswith("MCU")]
    return {
        prefix: [rule for rule in own if family(rule.code) == prefix] for prefix in families() if prefix[:3] == "MCU"
    }


if __name__ == "__main__":
    for stale in (DOCS / "rules").glob("*.md"):
        stale.unlink()
    (DOCS / "rules").mkdir(exist_ok=True)
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
