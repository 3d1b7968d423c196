"""`unpatch rules` and `unpatch explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded
from mcore_unpatch.rules import Rule, families, find
from mcore_unpatch.rules import rules as all_rules


@guarded
def rules() -> int:
    """List the rules by family."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for prefix, about in families().items():
        console.print(Text(f"{prefix}  {about}", style="bold"))
        for rule in all_rules().values():
            if rule.code.startswith(prefix):
                console.print(Text.assemble("  ", (rule.code, "cyan"), f"  {rule.name}: {rule.summary}"))
        console.print()
    return EXIT_CLEAN


@guarded
def explain(rule: Annotated[str, typer.Argument(help="A rule's code or name, such as MCU101.")]) -> int:
    """Show what a rule finds, why it matters, before and after, and since which megatron-core."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    found = find(rule)
    console.print(Text(f"{found.code} {found.name}", style="bold"))
    for line in as_markdown(found).splitlines():
        console.print(Text(line))
    return EXIT_CLEAN


def as_markdown(rule: Rule) -> str:
    """A rule as docs/rules.md shows it, below its heading."""
    summary = rule.summary[0].upper() + rule.summary[1:]
    return f"""
{summary}.

{rule.why}

Before:

```python
{rule.before}
```

After:

```python
{rule.after}
```

megatron-core: {rule.versions}.

{rule.link}
"""
