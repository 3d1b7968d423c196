"""Write a report in the format asked for; progress and notes go to stderr."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch.commands.guard import complain, note, reporting
from mcore_unpatch.commands.options import OutputFormat
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import printable

if TYPE_CHECKING:  # loaded with a report, not for `unpatch --help`
    from mcore_unpatch.findings.finding import Report
    from mcore_unpatch.report.lines import Line


def write(
    report: Report, style: OutputFormat, statistics: bool = False, *, on_one_screen: bool = False, quiet: bool = False
) -> None:
    """The report on stdout; what could not be analysed on stderr as well."""
    if quiet and style is OutputFormat.text:
        style = OutputFormat.concise
    with reporting():
        if style in (OutputFormat.text, OutputFormat.concise):
            from mcore_unpatch.report.lines import show

            show(_lines(report, style, statistics, on_one_screen))
        else:
            print(_page(report, style, statistics), end="")
    write_asides(report, notes=not quiet)


@contextmanager
def into(file: Path | None) -> Iterator[None]:
    """What is printed goes into a file, where one is named."""
    if file is None:
        yield
        return
    text = io.StringIO()
    with redirect_stdout(text):
        yield
    try:
        file.write_text(text.getvalue(), encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def write_asides(report: Report, notes: bool = True) -> None:
    """What could not be analysed, and the notes, on stderr."""
    for error in report.errors:
        complain(f"{report.from_here(error.path)}: {error.message}")
    for line in report.notes if notes else ():
        note(line)


def _lines(report: Report, style: OutputFormat, statistics: bool, on_one_screen: bool) -> Iterator[Line]:
    """The report for people who read it in a terminal."""
    from mcore_unpatch.report import screen, text

    if statistics:
        return text.statistics(report)
    if style is OutputFormat.concise:
        return text.concise(report)
    return screen.lines(report) if on_one_screen and report.findings else text.lines(report)


def _page(report: Report, style: OutputFormat, statistics: bool) -> str:
    """The report for machines and for browsers."""
    import json

    from mcore_unpatch.report import counts, markdown, scan_page, services, text

    if style is OutputFormat.github:
        return "\n".join(services.github(report)) + "\n"
    if style in (OutputFormat.markdown, OutputFormat.html):
        module = markdown if style is OutputFormat.markdown else scan_page
        return printable.lines(module.page_of(report))
    data: object = report.to_json()
    if style is OutputFormat.sarif:
        data = services.sarif(report)
    elif style is OutputFormat.gitlab:
        data = services.gitlab(report)
    elif isinstance(data, dict):
        data |= {"counts": counts.as_data(report.findings)} if report.fixes_known else {}
        data |= {"statistics": text.statistics_data(report)} if statistics else {}
    return json.dumps(data, indent=2) + "\n"


_BAR = 30  # characters of the bar


class Progress:
    """How far the work is, on a terminal, once it has taken a second."""

    def __init__(self) -> None:
        self._started, self._width = time.monotonic(), 0
        self._enabled = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` files are through."""
        if self._enabled and time.monotonic() - self._started > 1:
            self._show(f"[{'#' * (_BAR * done // max(total, 1)):{_BAR}}] {done} of {total} files")

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._show("")

    def _show(self, text: str) -> None:
        print(f"\r{text:{self._width}}\r", end="", file=sys.stderr, flush=True)
        self._width = len(text)
