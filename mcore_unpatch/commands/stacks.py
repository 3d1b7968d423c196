"""`unpatch stacks`: which Megatrons a repository runs, and who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, reporting
from mcore_unpatch.report.lines import Line, show, wrapped
from mcore_unpatch.repository.discover import top_of
from mcore_unpatch.stacks.revision import Stack
from mcore_unpatch.stacks.stacks import Stacks

_SHOWN = 6  # places of one stack
Repo = Annotated[Path, opt.argument("The repository, or a folder in it.")]
Format = Annotated[opt.TextOrJson, typer.Option("--output-format", help="How to write the list.")]


@guarded
def stacks(path: Repo = Path(), output_format: Format = opt.TextOrJson.text, stack: opt.Stack = None) -> int:
    """List the Megatrons that a repository runs.

    Every dependency, lock file, image, script and submodule that names one, and what scan, migrate and upgrade judge
    for. Nothing is run. `megatron = ["0.18.0", "core_r0.16.0"]` in [tool.unpatch] states them once and for all.
    """
    _, options = opt.combine([path], stack=stack)
    known = Stacks(top_of([path]), options.megatron, options.named_by, options.stacks)
    with reporting():
        if output_format is opt.TextOrJson.json:
            print(json.dumps(as_data(known), indent=2))
        else:
            show(lines(known))
    return EXIT_CLEAN


def as_data(stacks: Stacks) -> dict[str, object]:
    """The interface for machines, version 1."""
    return {
        "version": 1,
        "root": str(stacks.top),
        "judged": [stack.name for stack in stacks.of("").stacks],
        "stacks": [stack.to_json() for stack in stacks.all],
        "hints": [hint.to_json() for hint in stacks.hints],
        "notes": [] if stacks.given else stacks.found.notes,
    }


def lines(stacks: Stacks) -> Iterator[Line]:
    """The list for people."""
    for stack in stacks.all:
        yield from _stack(stack)
    if hints := stacks.hints:
        judged = not stacks.all and any(hint.versions for hint in hints)
        yield [("Only a hint:" if judged else "Only a hint, not judged for:", "dim")]
        for hint in hints:
            yield from wrapped(f"{hint.revision}: {hint.place}", 2)
        yield []
    if not stacks.given and stacks.found.notes:
        yield [("Not known:", "yellow")]
        for note in stacks.found.notes:
            yield from wrapped(note, 2)
        yield []
    yield from wrapped(str(stacks.of("")), 0)


def _stack(stack: Stack) -> Iterator[Line]:
    style = {"certain": "green", "likely": "yellow"}.get(stack.certainty, "red")
    tags = [stack.certainty, *stack.platforms]
    yield [(stack.name, "bold"), (f"  {', '.join(tags)}", style)]
    releases = " and ".join(stack.revision.releases)
    words = stack.revision.words
    if words or releases != stack.name:
        judged = "any of the releases" if stack.revision.is_range else "judged as"
        ends = " to ".join(stack.revision.releases) if stack.revision.is_range else releases
        yield from wrapped("; ".join(filter(None, [words, f"{judged} {ends}" if releases else ""])), 2)
    for said in stack.said[:_SHOWN]:
        yield [(f"  {said.place}", "cyan"), (f"  {said.source}", "dim")]
    if len(stack.said) > _SHOWN:
        yield [(f"  and {len(stack.said) - _SHOWN} more places", "dim")]
    if stack.why:
        yield from wrapped(stack.why, 2)
    if stack.revision.settle and stack.certainty != "certain":
        yield from wrapped(f"To know more, {stack.revision.settle}.", 2)
    yield []
