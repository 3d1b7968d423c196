"""`unpatch rules` and `unpatch explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, reporting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.findings.rules import Rule
    from mcore_unpatch.report.lines import Line


@guarded
def rules(
    chosen: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULES]...", help="Rules or families, such as MCU1. [default: all]", show_default=False
        ),
    ] = None,
) -> int:
    """List the rules by family."""
    from mcore_unpatch.findings.rules import Selection, families, family, rules as all_rules
    from mcore_unpatch.report.lines import show

    selection = Selection.parse(chosen or ["ALL"], [])

    def output() -> Iterator[Line]:
        for prefix, about in families().items():
            listed = [one for one in all_rules().values() if family(one.code) == prefix and one.code in selection]
            if listed:
                yield [(f"{prefix}  {about}", "bold")]
                yield from ([(f"  {one.code}", "cyan"), (f"  {one.name}: {one.summary}", "")] for one in listed)
                yield []

    with reporting():
        show(output())
    return EXIT_CLEAN


@guarded
def explain(
    rule: Annotated[str, typer.Argument(help="A rule's code or name, such as MCU101; or a codemod's, such as verl.")],
    url: Annotated[bool, typer.Option("--url", help="Print only the address of the rule's page.")] = False,
) -> int:
    """Explain a rule: what it finds, why, before and after.

    With the name of a codemod: what a migration changes, and what to check by hand.
    """
    from mcore_unpatch.codemods.registry import codemods
    from mcore_unpatch.findings.rules import find
    from mcore_unpatch.report.lines import show

    if url:
        print(find(rule).link or f"{rule} has no page; `unpatch explain {rule}` says what there is")
        return EXIT_CLEAN
    codemod = next((one for one in codemods() if one.name == rule.lower()), None)
    if codemod is not None:
        title, text = codemod.title, codemod.page().partition("\n")[2]
    else:
        found = find(rule)
        title, text = f"{found.code} {found.name}", as_markdown(found)
    body: list[Line] = [[(line, "")] for line in text.splitlines()]
    with reporting():
        show(iter([[(title, "bold")], *body]))
    return EXIT_CLEAN


def as_markdown(rule: Rule) -> str:
    """A rule as its page in docs/rules shows it, below its heading."""
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
""" + (f"\n{rule.link}\n" if rule.link else "")
