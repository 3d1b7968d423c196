"""Write a report in the format asked for; progress and notes go to stderr."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from mcore_unpatch.commands.guard import complain, note, reporting
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Report
from mcore_unpatch.report import services, text
from mcore_unpatch.report.counts import as_data
from mcore_unpatch.report.lines import Line, OutputFormat, show
from mcore_unpatch.repository.paths import printable_lines


def write(
    report: Report,
    style: OutputFormat,
    *,
    lines: Callable[[Report], Iterator[Line]] = text.lines,
    quiet: bool = False,
) -> None:
    """The report on stdout, for people as `lines` has it; what could not be analysed on stderr as well."""
    with reporting():
        match style:
            case OutputFormat.text if not quiet:
                show(lines(report))
            case OutputFormat.text:
                show(text.concise(report))
            case OutputFormat.github:
                print("\n".join(services.github(report)))
            case OutputFormat.html:
                from mcore_unpatch.report import pages

                print(printable_lines(pages.html(report)), end="")
            case OutputFormat.sarif:
                print(json.dumps(services.sarif(report), indent=2))
            case OutputFormat.gitlab:
                print(json.dumps(services.gitlab(report), indent=2))
            case OutputFormat.json:
                data = report.to_json()
                data |= {"counts": as_data(report.findings)} if report.fixes_known else {}
                print(json.dumps(data, indent=2))
    write_asides(report, notes=not quiet)


@contextmanager
def into(file: Path | None) -> Iterator[None]:
    """What is printed goes into a file, where one is named."""
    if file is None:
        yield
        return
    with redirect_stdout(io.StringIO()) as printed:
        yield
    try:
        file.write_text(printed.getvalue(), encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def write_asides(report: Report, notes: bool = True) -> None:
    """What could not be analysed, and the notes, on stderr."""
    for error in report.errors:
        complain(f"{report.from_here(error.path)}: {error.message}")
    for line in report.notes if notes else ():
        note(line)


class Progress:
    """How far the work is, on a terminal, once it has taken a second."""

    BAR = 30  # characters

    def __init__(self) -> None:
        self._started, self._width = time.monotonic(), 0
        self._enabled = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` files are through."""
        if self._enabled and time.monotonic() - self._started > 1:
            self._show(f"[{'#' * (self.BAR * done // max(total, 1)):{self.BAR}}] {done} of {total} files")

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._show("")

    def _show(self, text: str) -> None:
        print(f"\r{text:{self._width}}\r", end="", file=sys.stderr, flush=True)
        self._width = len(text)
