"""Trying one fault: a copy of the package with the fault in it, and the test files that ran its line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.faults import Fault
from tools.mutation.sample import REPOSITORY, test_files

BUILD = REPOSITORY / "build" / "mutation"
LIMIT = 900  # seconds for the tests of one fault; a fault that makes them run for ever is noticed

# Where each top-level folder lies in an installed package.
_INSTALLED = {"mcore_unpatch": "mcore_unpatch", "codemods": "mcore_unpatch/codemods", "compat": "mcore_unpatch/compat"}


@dataclass(frozen=True, slots=True)
class Covering:
    """One test file: how long it takes, and the lines it runs, by source file."""

    seconds: float
    lines: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fault: `noticed_by` is None where every test passed, `tried` empty where none ran the line."""

    fault: Fault
    noticed_by: str | None
    tried: list[str]


def attempt(fault: Fault, covering: dict[str, Covering]) -> Result:
    """Run the test files that reach a fault, the quickest first, until one fails."""
    lines = range(fault.line, fault.last_line + 1)
    reaching = [name for name, known in covering.items() if not set(lines).isdisjoint(known.lines.get(fault.path, ()))]
    reaching.sort(key=lambda name: (covering[name].seconds, name))
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        installed = _installed_copy(Path(folder))
        target = installed / _installed_name(fault.path)
        target.write_bytes(fault.applied_to(target.read_bytes()))
        deadline = time.monotonic() + LIMIT
        for name in reaching:
            if not _passes(name, installed, max(deadline - time.monotonic(), 1)):
                return Result(fault, name, reaching)
    return Result(fault, None, reaching)


def coverage_map(areas: list[str], jobs: int) -> dict[str, Covering]:
    """Which lines each test file runs, and how long it takes; kept for as long as neither changes."""
    names = sorted({name for area in areas for name in test_files(area)})
    digest = _digest()
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        installed = _installed_copy(Path(folder))
        with ThreadPoolExecutor(jobs) as pool:
            found = pool.map(lambda name: _covering(name, installed, digest), names)
            known = {}
            for name, covering in zip(names, found, strict=True):
                known[name] = covering
                print(f"[{len(known)}/{len(names)}] {name}: {covering.seconds:.0f} s", flush=True)
    return known


def _covering(name: str, installed: Path, digest: str) -> Covering:
    kept = BUILD / "coverage" / digest / f"{name.replace('/', '.')}.json"
    if kept.exists():
        return Covering(**json.loads(kept.read_text()))
    with tempfile.TemporaryDirectory(prefix="lines-") as folder:
        settings = Path(folder) / "coveragerc"
        settings.write_text(
            f"[run]\nsource = {installed}\ndata_file = {folder}/data\nparallel = true\nsigterm = true\n"
            "patch =\n    subprocess\n    _exit\n    fork\n"
        )
        began = time.monotonic()
        runner = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *_OPTIONS, name]
        done = subprocess.run(runner, cwd=REPOSITORY, env=_environment(installed), capture_output=True, text=True)
        seconds = time.monotonic() - began
        if done.returncode not in (0, 5):
            raise SystemExit(f"{name} fails without any fault:\n{done.stdout[-4000:]}")
        lines = _lines(settings, installed)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"seconds": seconds, "lines": lines}))
    return Covering(seconds, lines)


def _lines(settings: Path, installed: Path) -> dict[str, list[int]]:
    from coverage import Coverage

    measured = Coverage(config_file=str(settings))
    measured.combine()
    data = measured.get_data()
    found = {}
    for name, inside in sorted(_INSTALLED.items()):
        for path in sorted((REPOSITORY / name).glob("**/*.py")):
            relative = path.relative_to(REPOSITORY / name).as_posix()
            if lines := data.lines(str(installed / inside / relative)):
                found[f"{name}/{relative}"] = sorted(lines)
    return found


def _passes(name: str, installed: Path, limit: float) -> bool:
    runner = [sys.executable, "-m", "pytest", *_OPTIONS, "--exitfirst", name]
    process = subprocess.Popen(
        runner,
        cwd=REPOSITORY,
        env=_environment(installed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit) in (0, 5)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# A failing example of a property is not remembered: each fault starts from nothing.
_OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly"]


def _environment(installed: Path) -> dict[str, str]:
    """The copy stands before everything else on the path; the folder the tests run from does not stand there at all."""
    return os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _installed_copy(folder: Path) -> Path:
    for name, inside in _INSTALLED.items():
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / inside, ignore=skip, dirs_exist_ok=True)
    return folder


def _installed_name(path: str) -> str:
    top, _, rest = path.partition("/")
    return f"{_INSTALLED[top]}/{rest}"


def _digest() -> str:
    seen = hashlib.sha256()
    for folder in (*_INSTALLED, "tests"):
        for path in sorted((REPOSITORY / folder).glob("**/*.py")):
            seen.update(path.read_bytes())
    return seen.hexdigest()[:16]
