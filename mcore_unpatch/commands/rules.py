"""`unpatch rules` and `unpatch explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, reporting
from mcore_unpatch.findings.rules import Rule, Selection, families, family, find, rules as all_rules
from mcore_unpatch.report.lines import Line, show, wrapped
from mcore_unpatch.rewrites import codemods


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
    selection = Selection.parse(chosen or ["ALL"], [])

    def output() -> Iterator[Line]:
        for prefix, about in families().items():
            listed = [rule for rule in all_rules().values() if family(rule.code) == prefix and rule.code in selection]
            if listed:
                yield [(f"{prefix}  {about}", "bold")]
                for rule in listed:
                    yield from wrapped(f"{rule.name}: {rule.summary}", 2, f"{rule.code}  ", "cyan")
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
    if url:
        print(find(rule).link or f"{rule} has no page; `unpatch explain {rule}` says what there is")
        return EXIT_CLEAN
    codemod = next((codemod for codemod in codemods() if codemod.name == rule.lower()), None)
    if codemod is not None:
        title, text = codemod.title, codemod.page().partition("\n")[2]
    else:
        found = find(rule)
        title, text = f"{found.code} {found.name}", as_markdown(found)
    with reporting():
        show([[(title, "bold")], *_body(text)])
    return EXIT_CLEAN


def _body(text: str) -> Iterator[Line]:
    """Markdown for a terminal: paragraphs fill its lines; code and tables stay as they are."""
    in_code, paragraph = False, ""
    for line in [*text.splitlines(), ""]:
        in_code ^= (fence := line.startswith("```"))
        verbatim = in_code or fence or line.startswith(("|", "#", "    ")) or not line.strip()
        if paragraph and (verbatim or line.startswith(("- ", "1. "))):
            yield from wrapped(paragraph, 0)
            paragraph = ""
        if verbatim:
            yield [(line, "")]
        else:
            paragraph = f"{paragraph} {line.strip()}".strip()


def as_markdown(rule: Rule) -> str:
    """The text of a rule below its heading, in Markdown."""
    code = [f"{head}:\n\n```python\n{text}\n```" for head, text in (("Before", rule.before), ("After", rule.after))]
    parts = [rule.sentence, rule.why, *code, f"megatron-core: {rule.versions}.", rule.link]
    return "\n" + "\n\n".join(filter(None, parts)) + "\n"
