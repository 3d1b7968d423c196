"""Write `docs/rules.md`, the page of all rules, from the rules themselves.

python tools/build_rules_page.py
"""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.findings.rules import Rule, families, family, rules

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
INTRO = """# Rules

Each code that a report can name. `unpatch explain MCU101` prints the section of one rule. The script
`tools/build_rules_page.py` writes this page.
"""


def page() -> str:
    """The text of docs/rules.md: a section for each family, below it one for each rule."""
    own = [rule for rule in rules().values() if rule.code.startswith("MCU")]
    parts = [INTRO]
    for prefix, about in families().items():
        group = [rule for rule in own if family(rule.code) == prefix]
        parts += [f"\n## {prefix}: {about}\n", *map(_section, group)] if group else []
    return "".join(parts)


def _section(rule: Rule) -> str:
    """One rule; its heading is the anchor that `Rule.link` names."""
    code = "\n".join(f"# {head}\n{text}" for head, text in (("before", rule.before), ("after", rule.after)) if text)
    versions = "" if rule.versions == "any" else f" megatron-core: {rule.versions}."
    block = f"\n```python\n{code}\n```\n" if code else ""
    return f"\n### {rule.code} {rule.name}\n\n{rule.sentence} {rule.why}{versions}\n{block}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
