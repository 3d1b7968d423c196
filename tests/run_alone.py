"""Runs every test file in a process of its own, its tests in random order: no test may lean on another before it.

python tests/run_alone.py [--seed N] [--jobs N] [FILE ...]

The processes are forked from one that has imported what other projects made: pytest and libcst for all, and torch and
Megatron for the tests of compat, which are most of what a process of its own would cost. Nothing of ours is imported
before the fork.
"""

import argparse
import importlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from limits import LOOK, Countdown

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "compat"))

from harness.pool import share_nurseries  # noqa: E402

LIMIT = 900  # seconds for one file
NO_TESTS = 5  # pytest's exit code where everything in a file is skipped or nothing is there
FOR_ALL = ("pytest", "hypothesis", "libcst", "libcst.metadata", "rich.console", "typer", "yaml")
FOR_COMPAT = ("torch", "torch.distributed", "megatron.core.models.gpt.gpt_model", "megatron.core.pipeline_parallel")


def run_file(file: Path, seed: int, log: Path) -> None:
    """In the process of the file: what pytest says goes into `log`."""
    import pytest

    out = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not growth", "--durations=5"]
    sys.exit(pytest.main([*options, "--order-seed", str(seed), str(file)]))


def results(files: Sequence[Path], seed: int, jobs: int, folder: Path) -> Iterator[tuple[Path, float, str]]:
    """Each file as it ends: the seconds it took, and what pytest says, or nothing if all is well."""
    waiting = [(file, folder / str(file.relative_to(TESTS)).replace("/", ".")) for file in files]
    running: dict[Any, tuple[BaseProcess, Path, Path, Countdown, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            file, log = waiting.pop(0)
            process = get_context("fork").Process(target=run_file, args=(file, seed, log))
            process.start()
            running[process.sentinel] = (process, file, log, Countdown(LIMIT), time.monotonic())
        ended = wait(list(running), LOOK)
        late = [sentinel for sentinel, (*_, countdown, _) in running.items() if not countdown.left()]
        for sentinel in {*ended, *late}:
            process, file, log, _, start = running.pop(sentinel)
            if sentinel in late:
                process.kill()
            process.join()
            said = "" if process.exitcode in (0, NO_TESTS) else f"exit code {process.exitcode}\n" + _end_of(log)
            yield file, time.monotonic() - start, f"not done after {LIMIT} s\n{said}" if sentinel in late else said


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:] if log.exists() else ""


def main() -> int:
    """Exit code 1 if a file fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--logs", type=Path, help="a folder for what pytest says of each file")
    given = parser.parse_args()
    files = [file.resolve() for file in given.files] or sorted(TESTS.rglob("test_*.py"))
    random.Random(given.seed).shuffle(files)
    print(f"{len(files)} files, seed {given.seed}", flush=True)
    of_compat = [file for file in files if file.is_relative_to(TESTS / "compat")]
    others = [file for file in files if file not in of_compat]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed = 0
    with tempfile.TemporaryDirectory() as own:
        folder = given.logs or Path(own)
        folder.mkdir(exist_ok=True, parents=True)
        for modules, group in ((FOR_ALL, others), (FOR_COMPAT, of_compat)):
            for module in modules if group else ():
                importlib.import_module(module)
            with share_nurseries() if group is of_compat and group else nullcontext():
                for file, seconds, said in results(group, given.seed, given.jobs, folder):
                    print(f"{'FAILED' if said else 'passed'} {seconds:6.1f} s {file.relative_to(TESTS)}", flush=True)
                    print(said, end="")
                    failed += bool(said)
    print(f"{len(files) - failed} of {len(files)} files pass alone (seed {given.seed})")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
