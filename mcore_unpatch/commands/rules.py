"""`unpatch rules` and `unpatch explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.report.text import Line
    from mcore_unpatch.rules import Rule


@guarded
def rules() -> int:
    """List the rules by family."""
    from mcore_unpatch.report.text import show
    from mcore_unpatch.rules import families
    from mcore_unpatch.rules import rules as all_rules

    def output() -> Iterator[Line]:
        for prefix, about in families().items():
            yield [(f"{prefix}  {about}", "bold")]
            for rule in all_rules().values():
                if rule.code.startswith(prefix):
                    yield [(f"  {rule.code}", "cyan"), (f"  {rule.name}: {rule.summary}", "")]
            yield []

    show(output())
    return EXIT_CLEAN


@guarded
def explain(rule: Annotated[str, typer.Argument(help="A rule's code or name, such as MCU101.")]) -> int:
    """Show what a rule finds, why it matters, before and after, and since which megatron-core."""
    from mcore_unpatch.report.text import show
    from mcore_unpatch.rules import find

    found = find(rule)
    body: list[Line] = [[(line, "")] for line in as_markdown(found).splitlines()]
    show(iter([[(f"{found.code} {found.name}", "bold")], *body]))
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
