"""`unpatch init`: the first command: what is here, and the files with which `check` keeps it so."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mcore_unpatch.commands import check as checking, options as opt, pin as pinning
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_FINDINGS, guarded, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.commands.output import Progress
from mcore_unpatch.errors import UsageError
from mcore_unpatch.pins import LOCK
from mcore_unpatch.report.counts import subjects
from mcore_unpatch.report.lines import Line, count, show, wrapped
from mcore_unpatch.repository import git
from mcore_unpatch.repository.config import table_of
from mcore_unpatch.repository.discover import top_of
from mcore_unpatch.repository.reading import replace_file
from mcore_unpatch.stacks.revision import Stack
from mcore_unpatch.stacks.sources import target
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.survey import ScanOptions, Survey

Repo = Annotated[Path, opt.argument("The repository.")]
Yes = Annotated[bool, option("--yes", "Write without asking.", "-y")]
DryRun = Annotated[bool, option("--dry-run", "Show what would be written, and write nothing.")]
_YEAR = 365 * 24 * 3600
_SHOWN = 3  # places of one Megatron
GITHUB, GITLAB = ".github/workflows/unpatch.yml", ".gitlab/unpatch.yml"
_CI = {
    GITHUB: """name: unpatch
on: pull_request
jobs:
  gate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
        with: { fetch-depth: 0 } # the merge base is looked for
      - uses: mcore-unpatch/mcore-unpatch@main
""",
    GITLAB: """unpatch:
  image: python:3.12
  rules: [{ if: $CI_PIPELINE_SOURCE == "merge_request_event" }]
  variables: { GIT_DEPTH: "0" }
  script:
    - pip install mcore-unpatch
    - unpatch check --base "$CI_MERGE_REQUEST_DIFF_BASE_SHA"
""",
}


@guarded
def init(path: Repo = Path(), yes: Yes = False, dry_run: DryRun = False) -> int:
    """Set a repository up: say which Megatrons it runs, accept today's patches, and let CI refuse new ones.

    Exit code: 0 if written or shown, 1 if you said no, 2 a usage error.
    """
    top = top_of([path])
    with Progress() as progress:
        survey = Survey([path], ScanOptions(fixes=True), progress)
    current, older = _in_use(survey.stacks)
    files = dict(_files(top, current, older))
    with reporting():
        show(_told(survey, current, older, files))
    if dry_run or not files:
        return EXIT_CLEAN
    if not yes and not sys.stdin.isatty():
        raise UsageError("Nothing was written: `--yes` writes these files, `--dry-run` only shows them.")
    if not yes and not typer.confirm("Write these files?", default=True):
        return EXIT_FINDINGS
    for name, text in files.items():
        if text:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(top / name, text)
    folder = str(top)
    try:
        if LOCK in files:
            pinning.pin([folder])
    except typer.Exit as end:  # with which every command ends
        if end.exit_code != EXIT_CLEAN:
            raise
    if opt.DEFAULT_BASELINE in files:
        checking.check([Path(folder)], write_baseline=True)
    return EXIT_CLEAN


def _in_use(stacks: Stacks) -> tuple[list[Stack], list[Stack]]:
    """The Megatrons that a file names which changed within a year, and the others."""
    current, older = list[Stack](), list[Stack]()
    for stack in stacks.all:
        (current if any(_is_recent(stacks.top, said.path) for said in stack.said) else older).append(stack)
    return (current, older) if current else (older, [])


def _is_recent(top: Path, path: str) -> bool:
    """Whether the last commit of a file is of the last year; without git every file is."""
    try:
        when = git.run(top, "log", "-1", "--format=%ct", "--", path).decode().strip()
    except git.GitError:
        return True
    return not when or time.time() - int(when) < _YEAR


def _files(top: Path, current: list[Stack], older: list[Stack]) -> Iterator[tuple[str, str]]:
    """The files that are not there yet, each with its text; empty where another command writes it."""
    project = top / "pyproject.toml"
    text = project.read_text(encoding="utf-8") if project.is_file() else ""
    named = [stack.name for stack in current if _can_be_stated(stack.name)]
    if named and table_of(text.encode(), project) is None:
        listed = ", ".join(f'"{name}"' for name in named)
        left = "".join(f"# older, left out: {stack.name} ({stack.place})\n" for stack in older[:_SHOWN])
        yield "pyproject.toml", f"{text.rstrip()}\n\n[tool.unpatch]\nmegatron = [{listed}]\n{left}".lstrip()
    if not (top / LOCK).exists():
        yield LOCK, ""
    if not (top / opt.DEFAULT_BASELINE).exists():
        yield opt.DEFAULT_BASELINE, ""
    forge = GITLAB if (top / ".gitlab-ci.yml").exists() else GITHUB
    if not (top / forge).exists():
        yield forge, _CI[forge]


def _can_be_stated(name: str) -> bool:
    try:
        return bool(target(name).revision.versions)
    except UsageError:
        return False


def _told(survey: Survey, current: list[Stack], older: list[Stack], files: dict[str, str]) -> Iterator[Line]:
    found = subjects(survey.findings) if survey.findings else "no patch of Megatron Core"
    done = f"; {len(survey.done)} side by side already" if survey.done else ""
    yield from wrapped(f"{found}{done}", 0, "Found   ", "bold")
    for number, stack in enumerate(current):
        platforms = f"  {', '.join(stack.platforms)}" if stack.platforms else ""
        yield from wrapped(f"{stack.name}  {stack.place}{platforms}", 0, "        " if number else "In use  ", "bold")
    if older:
        names = ", ".join(stack.name for stack in older)
        yield from wrapped(f"{names} (files unchanged for a year): left out", 0, "Older   ", "bold")
    yield []
    about = {
        "pyproject.toml": "[tool.unpatch] megatron = [...]",
        LOCK: "what the patches that stay were written for",
        opt.DEFAULT_BASELINE: "today's findings are accepted",
    }
    yield [("Will write" if files else "Everything is there already.", "bold")]
    for name in files:
        yield [(f"  {name:32}", "cyan"), (about.get(name, "fails when a pull request adds a patch"), "")]
    if GITLAB in files:
        yield from wrapped(f"include it in .gitlab-ci.yml: `include: {{ local: {GITLAB} }}`", 2)
    yield from wrapped(f"unpatch migrate --diff, for {count(len(survey.findings), 'finding')}", 0, "Then    ", "bold")
