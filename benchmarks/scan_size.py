"""Time and memory of `unpatch` on a large tree: `python benchmarks/scan_size.py SOURCE... [--runs N] [--migrate]`.

Copies the Python files of different sources (checkouts, unpacked wheels), each once, into one git repository. Then
`ruff check --no-cache`, `unpatch check` and `unpatch scan` with one process and with two, `unpatch check` on what it
remembers, there after a change of one file that nobody imports and, if asked, `unpatch migrate --diff` take turns on
it. Prints medians of wall and CPU seconds, their ratios over ruff, and the largest resident memory of all processes of
a run together. On a machine with other work only CPU seconds say something.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scan_speed import ENVIRONMENT, command

CHANGED = "unpatch check, one file changed"


def python_files(source: Path) -> Iterator[Path]:
    """The Python files of a folder, links left out."""
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(folder, name) for name in sorted(names) if name.endswith(".py"))
        yield from (file for file in files if not file.is_symlink())


def make_tree(sources: list[Path], folder: Path) -> tuple[int, int]:
    """A repository of the files of all sources; their number and their bytes."""
    count = size = 0
    for source in sources:
        for file in python_files(source):
            target = folder / source.name / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            count, size = count + 1, size + target.stat().st_size
    for arguments in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return count, size


def family(process: int) -> list[int]:
    """A process and those it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(one for child in children for one in family(int(child)))]


def resident(process: int) -> int:
    """Bytes of a process in memory, its part of what it shares with others; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class Measured(NamedTuple):
    """What one call took."""

    wall: float
    cpu: float
    peak: int


def cpu_of_children() -> float:
    """CPU seconds of all processes that were started and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def measure(call: list[str]) -> Measured:
    """Seconds and the peak of resident bytes of one call."""
    started, before, peak = time.perf_counter(), cpu_of_children(), 0
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as running:
        while running.poll() is None:
            peak = max(peak, sum(map(resident, family(running.pid))))
            time.sleep(0.05)
    return Measured(time.perf_counter() - started, cpu_of_children() - before, peak)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of real code, each of another project")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--migrate", action="store_true", help="measure `unpatch migrate --diff` too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        count, size = make_tree([source.resolve() for source in arguments.sources], Path(temporary))
        unpatch = command("unpatch")
        calls = {"ruff check --no-cache": [command("ruff"), "check", "--no-cache", "--isolated", temporary]}
        for name in ("check", "scan"):
            for jobs in ("1", "2"):
                calls[f"unpatch {name} --jobs {jobs}"] = [unpatch, name, "--no-cache", "--jobs", jobs, temporary]
        calls["unpatch check, remembered"] = calls[CHANGED] = [unpatch, "check", temporary]
        changing = Path(temporary, "nobody_imports_this.py")
        changing.write_text("")
        measure(calls[CHANGED])
        if arguments.migrate:
            calls["unpatch migrate --diff"] = [command("unpatch"), "migrate", "--diff", temporary]
        results: dict[str, list[Measured]] = {name: [] for name in calls}
        for run in range(arguments.runs):
            for name, call in calls.items():
                if name == CHANGED:
                    changing.write_text(f"x = {run}\n")
                results[name].append(measure(call))
    print(f"{count} files, {size / 1e6:.0f} MB, median of {arguments.runs} runs in turn")
    ruff = results["ruff check --no-cache"]
    for name, measured in results.items():
        (wall, cpu, _), (ruff_wall, ruff_cpu, _) = (
            map(statistics.median, zip(*some, strict=True)) for some in (measured, ruff)
        )
        told = f"{wall:7.2f} s wall ({wall / ruff_wall:5.2f})  {cpu:7.2f} s CPU ({cpu / ruff_cpu:5.2f})"
        print(f"  {name:33} {told}  {max(one.peak for one in measured) / 1e6:6.0f} MB at most")


if __name__ == "__main__":
    main()
