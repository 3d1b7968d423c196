"""Writes down which functions of the package run while a test does, in every process that the test starts.

Python imports this module by itself in all of them (its folder is on PYTHONPATH), and a fork takes it along. Which test
it is stands in a small file that all of them have mapped: ranks live longer than the test that they were started for.
"""

import mmap
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

_TOOL = 3  # one of sys.monitoring's numbers that nobody else has
SOURCES = "MCORE_UNPATCH_REACH_SOURCES"  # the folders whose functions count
NOW = "MCORE_UNPATCH_REACH_NOW"  # the file with the number of the test


def begin() -> None:
    """Start writing, beside the file that NOW names."""
    sources = tuple(f"{folder}/" for folder in os.environ[SOURCES].split(os.pathsep))
    now = Path(os.environ[NOW])
    with now.open("r+b") as file:
        number = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
    out = os.open(f"{now}.reached", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: set[tuple[int, CodeType]] = set()

    def entered(code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(sources):
            return sys.monitoring.DISABLE
        if (key := (number[0], code)) not in seen:
            seen.add(key)
            os.write(out, f"{number[0]}\t{code.co_filename}\t{code.co_qualname}\n".encode())
        return None

    sys.monitoring.use_tool_id(_TOOL, "reach")
    sys.monitoring.register_callback(_TOOL, sys.monitoring.events.PY_START, entered)
    sys.monitoring.set_events(_TOOL, sys.monitoring.events.PY_START)


if NOW in os.environ:
    begin()
