"""Options that several commands share, and how they combine with the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mcore_unpatch.commands.guard import note
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.megatron import known
from mcore_unpatch.report.lines import OutputFormat
from mcore_unpatch.repository import reading
from mcore_unpatch.repository.config import Config, load
from mcore_unpatch.repository.discover import existing
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.stacks.revision import Revision
from mcore_unpatch.stacks.sources import target
from mcore_unpatch.survey.survey import ScanOptions

DEFAULT_BASELINE = "unpatch.baseline.json"
TextOrJson = StrEnum("TextOrJson", "text json")


def option(name: str, about: str, *short: str) -> Any:
    """An option of a command; its help says the default, where it has one."""
    return typer.Option(name, *short, help=about, show_default=False)


def argument(about: str) -> Any:
    """What stands behind a command without a name; its help says the default, where it has one."""
    return typer.Argument(help=about, show_default=False)


_SELECT = "Rules or families to report, such as MCU1 or MCU101,MCU2. Offers (MCU75) and mocks (MCU9) are "
_TARGET = "The Megatron to judge for: a release, a tag, a branch, a commit, a checkout, a wheel, or CLONE@COMMIT. "
_STACK = "Of the Megatrons that the repository runs, judge for this one: its name, its platform, or a file that "
Paths = Annotated[list[Path] | None, argument("Files and folders to scan. [default: .]")]
Format = Annotated[OutputFormat | None, option("--output-format", "How to write the report. [default: text]")]
OutputFile = Annotated[Path | None, option("--output-file", "Write the report to a file instead of stdout.", "-o")]
Quiet = Annotated[bool, option("--quiet", "Only one line per finding, nothing where there is none.", "-q")]
Select = Annotated[list[str] | None, option("--select", f"{_SELECT}off by default.")]
Ignore = Annotated[list[str] | None, option("--ignore", "Rules or families to ignore.")]
Exclude = Annotated[list[str] | None, option("--exclude", "Glob patterns of files and folders to skip.")]
TargetMcore = Annotated[str | None, option("--target-mcore", f"{_TARGET}[default: every one that the repository runs]")]
Stack = Annotated[list[str] | None, option("--stack", f"{_STACK}names it. `unpatch stacks` lists them.")]
NoCache = Annotated[bool, option("--no-cache", "Analyse every file, also those that are the same as before.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes to run. [default: one per core]", show_default=False)]
AllowDirty = Annotated[bool, option("--allow-dirty", "Write even if there are uncommitted changes.")]
AllowNoVcs = Annotated[bool, option("--allow-no-vcs", "Write even outside of a git repository.")]
Json = Annotated[bool, option("--json", "Write the report as JSON.")]


def combine(
    paths: list[Path] | None,
    select: list[str] | None = None,
    ignore: list[str] | None = None,
    exclude: list[str] | None = None,
    target_mcore: str | None = None,
    jobs: int | None = None,
    base: str | None = None,
    baseline: Path | None = None,
    config: Config | None = None,
    stack: list[str] | None = None,
) -> tuple[Config, ScanOptions]:
    """The configuration found from the first path, unless given, and the options with the command line on top of it."""
    config = config or load(start(paths))
    for line in config.notes:
        note(line)
    if target_mcore is not None and not target_mcore.strip():  # a variable of CI that is not set
        raise UsageError("--target-mcore is empty: name a release, or leave it out")
    named = target(target_mcore) if target_mcore is not None else None
    if named is not None and named.source is not None:  # which speaks for it from now on
        known.lend(named.revision.versions[0], named.models()[0])
    stated = config.text("baseline")
    if baseline is None and stated and config.folder:
        baseline = config.folder / stated
        if not baseline.resolve().is_relative_to(reading.boundary(config.folder).resolve()):
            where = f"baseline = {stated!r} in {shown(config.file)} leads out of the repository"
            raise UsageError(f"{where}: change it, or name the file with --baseline")
    options = ScanOptions(
        selection=Selection.parse(select or config.list("select"), ignore or config.list("ignore")),
        exclude=(*config.list("exclude"), *(exclude or [])),
        exclude_base=config.folder,
        megatron=(named.revision,) if named else tuple(_stated(config)),
        named_by="named by --target-mcore" if named else f"stated in {shown(config.file)}",
        stacks=tuple(stack or ()),
        source=named.source if named else None,
        jobs=jobs or config.values.get("jobs", 0),
        base=base or config.text("base"),
        baseline=baseline,
    )
    return config, options


def _stated(config: Config) -> Iterator[Revision]:
    """The stacks that the configuration states once and for all."""
    old = config.text("target-mcore")
    for text in config.list("megatron") or ([old] if old else []):
        try:
            yield target(text).revision
        except UsageError as error:
            raise UsageError(f"{shown(config.file)}: {error}") from None


def output_format(given: OutputFormat | None, config: Config) -> OutputFormat:
    """The format the user asked for; raises `UsageError` for one the configuration names wrongly."""
    try:
        return given or OutputFormat(config.text("output-format") or OutputFormat.text)
    except ValueError as error:
        formats = f"[tool.unpatch]; use one of {', '.join(OutputFormat)}"
        raise UsageError(f"unknown output-format {config.text('output-format')!r} in {formats}") from error


def start(paths: list[Path] | None) -> Path:
    """The path from which the configuration is looked for."""
    return existing((paths or [Path()])[0])
