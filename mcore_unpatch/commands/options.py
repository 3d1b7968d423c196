"""Options that `scan` and `check` share, and how they combine with the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcore_unpatch.commands.guard import note
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import reading
from mcore_unpatch.repository.printable import shown

if TYPE_CHECKING:  # loaded when a command runs, so that `unpatch --help` answers at once
    from mcore_unpatch.megatron.targets import Target
    from mcore_unpatch.repository.config import Config
    from mcore_unpatch.stacks.revision import Revision
    from mcore_unpatch.survey.survey import ScanOptions


DEFAULT_BASELINE = "unpatch.baseline.json"


class TextOrJson(StrEnum):
    """For people or for programs."""

    text = "text"
    json = "json"


class OutputFormat(StrEnum):
    """How a report is written."""

    text = "text"
    concise = "concise"
    markdown = "markdown"
    json = "json"
    sarif = "sarif"
    github = "github"
    gitlab = "gitlab"
    html = "html"


Paths = Annotated[list[Path] | None, typer.Argument(help="Files and folders to scan. [default: .]", show_default=False)]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--output-format", help="How to write the report. [default: text]", show_default=False),
]
OutputFile = Annotated[
    Path | None,
    typer.Option("--output-file", "-o", help="Write the report to a file instead of stdout.", show_default=False),
]
Statistics = Annotated[bool, typer.Option("--statistics", help="Only count the findings, one line per rule.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only one line per finding, nothing where there is none.")]
Select = Annotated[
    list[str] | None,
    typer.Option(
        help="Rules or families to report, such as MCU1 or MCU101,MCU2. "
        "Offers (MCU75) and mocks (MCU9) are off by default."
    ),
]
Ignore = Annotated[list[str] | None, typer.Option(help="Rules or families to ignore.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Glob patterns of files and folders to skip.")]
TargetMcore = Annotated[
    str | None,
    typer.Option(
        help="The Megatron to judge for: a release, a tag, a branch, a commit, a checkout, a wheel, or CLONE@COMMIT. "
        "[default: every one that the repository runs]",
        show_default=False,
    ),
]
Stack = Annotated[
    list[str] | None,
    typer.Option(
        "--stack",
        help="Of the Megatrons that the repository runs, judge for this one: its name, its platform, or a file that "
        "names it. `unpatch stacks` lists them.",
        show_default=False,
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Analyse every file, also those that are the same as before.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes to run. [default: one per core]", show_default=False)]


def combine(
    paths: list[Path] | None,
    select: list[str] | None,
    ignore: list[str] | None,
    exclude: list[str] | None,
    target_mcore: str | None,
    jobs: int | None,
    base: str | None = None,
    baseline: Path | None = None,
    config: Config | None = None,
    stack: list[str] | None = None,
) -> tuple[Config, ScanOptions]:
    """The configuration found from the first path, unless given, and the options with the command line on top of it."""
    from mcore_unpatch.findings.rules import Selection
    from mcore_unpatch.repository.config import load
    from mcore_unpatch.survey.survey import ScanOptions

    config = config or load(start(paths))
    for line in config.notes:
        note(line)
    named = target(target_mcore)
    stated = () if named else tuple(_stated(config))
    known = config.text("baseline")
    if baseline is None and known and config.folder:
        baseline = config.folder / known
        if not baseline.resolve().is_relative_to(reading.boundary(config.folder).resolve()):
            raise UsageError(
                f"baseline = {known!r} in {shown(config.file)} leads out of the repository: "
                "change it, or name the file with --baseline"
            )
    options = ScanOptions(
        selection=Selection.parse(select or config.list("select"), ignore or config.list("ignore")),
        exclude=(*config.list("exclude"), *(exclude or [])),
        exclude_base=config.folder,
        megatron=(named.revision,) if named else stated,
        named_by="named by --target-mcore" if named else f"stated in {shown(config.file)}",
        stacks=tuple(stack or ()),
        source=named.source if named else None,
        jobs=jobs or config.values.get("jobs", 0),
        base=base or config.text("base"),
        baseline=baseline,
    )
    return config, options


def target(text: str | None) -> Target | None:
    """The Megatron that the user names; its source, where it has one, speaks for it from now on."""
    if text is None:
        return None
    from mcore_unpatch.megatron.targets import target as named

    found = named(text)
    found.lend()
    return found


def _stated(config: Config) -> Iterator[Revision]:
    """The stacks that the configuration states once and for all."""
    from mcore_unpatch.megatron.targets import target as named

    old = config.text("target-mcore")
    for text in config.list("megatron") or ([old] if old else []):
        try:
            yield named(text).revision
        except UsageError as error:
            raise UsageError(f"{shown(config.file)}: {error}") from None


def output_format(given: OutputFormat | None, config: Config) -> OutputFormat:
    """The format the user asked for; raises `UsageError` for one the configuration names wrongly."""
    if given is not None:
        return given
    name = config.text("output-format")
    if name is None:
        return OutputFormat.text
    try:
        return OutputFormat(name)
    except ValueError:
        known = ", ".join(OutputFormat)
        raise UsageError(f"unknown output-format {name!r} in {config.table}; use one of {known}") from None


def start(paths: list[Path] | None) -> Path:
    """The path from which the configuration is looked for."""
    from mcore_unpatch.repository.discover import existing

    return existing((paths or [Path()])[0])
