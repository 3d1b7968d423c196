"""Writes down which lines of the package run while a test does, in every process that the test starts.

Python imports this module by itself in all of them (its folder is on PYTHONPATH), and a fork takes it along. Which test
it is stands in a small file that all of them have mapped: ranks live longer than the test that they were started for.
"""

import mmap
import os
import struct
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

_TOOL = sys.monitoring.COVERAGE_ID
SOURCES = "MCORE_UNPATCH_REACH_SOURCES"  # the folders whose lines count
NOW = "MCORE_UNPATCH_REACH_NOW"  # the file with the number of the test
LINE = struct.Struct("=III")  # the number of the test, the file by its checksum, the line


def begin(runs_the_tests: bool = False) -> None:
    """Start writing, beside the file that NOW names. Who runs the tests calls `restart_events` before each."""
    events, disable = sys.monitoring.events, sys.monitoring.DISABLE
    sources = tuple(f"{folder}/" for folder in os.environ[SOURCES].split(os.pathsep))
    now = Path(os.environ[NOW])
    with now.open("r+b") as file:
        number = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
    lines, files = (os.open(f"{now}.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT) for kind in ("lines", "files"))
    checksums: dict[str, int] = {}
    last = number[0]

    def entered(code: CodeType, offset: int) -> Any:
        nonlocal last
        path = code.co_filename
        if not path.startswith(sources):
            return disable
        if path not in checksums:
            checksums[path] = zlib.crc32(path.encode())
            os.write(files, f"{checksums[path]}\t{path}\n".encode())
        if not sys.monitoring.get_local_events(_TOOL, code):
            sys.monitoring.set_local_events(_TOOL, code, events.LINE)
        if runs_the_tests:
            return disable
        if number[0] != last:  # another test: each of its lines counts again
            last = number[0]
            sys.monitoring.restart_events()
        return None

    def came_to(code: CodeType, line: int) -> Any:
        if code.co_filename in checksums:
            with suppress(OSError):  # a test of what happens where nothing can be written
                os.write(lines, LINE.pack(number[0], checksums[code.co_filename], line))
        return disable

    def happened(event: str, arguments: tuple[Any, ...]) -> None:
        """A test that reads a source as text has all of it as line 0; imports read compiled files."""
        if event == "open" and isinstance(path := arguments[0], str) and path.startswith(sources):
            if path.endswith(".py"):
                os.write(files, f"{zlib.crc32(path.encode())}\t{path}\n".encode())
                os.write(lines, LINE.pack(number[0], zlib.crc32(path.encode()), 0))

    sys.addaudithook(happened)
    sys.monitoring.use_tool_id(_TOOL, "reach")
    sys.monitoring.register_callback(_TOOL, events.PY_START, entered)
    sys.monitoring.register_callback(_TOOL, events.LINE, came_to)
    sys.monitoring.set_events(_TOOL, events.PY_START)


if NOW in os.environ:
    begin()
