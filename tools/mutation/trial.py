"""Trying one fault: a copy of the package with the fault in it, and the tests that ran its line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.mutation.faults import Fault
from tools.mutation.sample import AREAS, REPOSITORY, area_of, test_files

BUILD = REPOSITORY / ".cache" / "mutation"
FILES = 25  # test files tried for one fault: those of its area first, the quickest first
WHOLE = ""  # stands for all tests of a file

# Where each top-level folder lies in an installed package.
_INSTALLED = {"mcore_unpatch": "mcore_unpatch", "codemods": "mcore_unpatch/codemods", "compat": "mcore_unpatch/compat"}


@dataclass(frozen=True, slots=True)
class Covering:
    """One test file: how long it takes, which of its tests fail without a fault, which test runs which line.

    `lines` has a source file's lines by test; those of `WHOLE` run while the file is imported or in another process.
    """

    seconds: float
    failing: list[str]
    lines: dict[str, dict[str, list[int]]]

    def reaching(self, fault: Fault) -> list[str]:
        """The tests that run a line of the fault."""
        span = set(range(fault.line, fault.last_line + 1))
        return [test for test, lines in self.lines.get(fault.path, {}).items() if not span.isdisjoint(lines)]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fault: `noticed_by` is None where every test passed, `tried` empty where none ran the line."""

    fault: Fault
    noticed_by: str | None
    tried: list[str]


def attempt(fault: Fault, covering: dict[str, Covering]) -> Result:
    """Run the tests that reach a fault until one fails."""
    reaching = {name: tests for name, known in covering.items() if (tests := known.reaching(fault))}
    # A line that runs on import is run by every file; those count that run something else of its file as well.
    deeper = {name for name in reaching if covering[name].lines[fault.path].keys() != {WHOLE}}
    folders = AREAS[area_of(fault.path)][1]

    def nearest(name: str) -> tuple[int, float]:
        near = next((at for at, folder in enumerate(folders) if name.startswith(f"{folder}/")), len(folders))
        return near, covering[name].seconds

    names = sorted(deeper or reaching, key=nearest)[:FILES]
    chosen = [test for name in names for test in ([name] if WHOLE in reaching[name] else sorted(reaching[name]))]
    if not chosen:
        return Result(fault, None, [])
    passed_over = [f"--deselect={test}" for name in names for test in covering[name].failing]
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        installed = _installed_copy(Path(folder))
        target = installed / _installed_name(fault.path)
        target.write_bytes(fault.applied_to(target.read_bytes()))
        # A fault that makes the tests run for ever is noticed.
        limit = 120 + 5 * sum(covering[name].seconds for name in names)
        return Result(fault, _first_failure([*passed_over, *chosen], installed, limit), chosen)


def coverage_map(areas: list[str]) -> dict[str, Covering]:
    """Which test runs which line, by test file; kept until the file, the source or a helper of the tests changes."""
    names = sorted({name for area in areas for name in test_files(area)})
    common = _digest(path for folder in (*_INSTALLED, "tests") for path in (REPOSITORY / folder).glob("**/*.py"))
    folder = BUILD / "coverage" / common
    kept = {
        name: folder / f"{name.replace('/', '.')}-{_digest([REPOSITORY / name], tests=True)}.json" for name in names
    }
    if missing := [name for name in names if not kept[name].exists()]:
        folder.mkdir(parents=True, exist_ok=True)
        for name, covering in _measured(missing).items():
            kept[name].write_text(json.dumps(asdict(covering)))
    known = {name: Covering(**json.loads(kept[name].read_text())) for name in names}
    for test in sorted(test for covering in known.values() for test in covering.failing):
        print(f"left out, it fails without any fault: {test}", flush=True)
    return known


def _measured(names: list[str]) -> dict[str, Covering]:
    print(f"Running {len(names)} test files to see which lines they reach ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        installed = _installed_copy(Path(folder) / "installed")
        shutil.copy(Path(__file__).with_name("contexts.py"), installed)
        settings, report = Path(folder) / "coveragerc", Path(folder) / "report.xml"
        settings.write_text(
            f"[run]\nsource = {installed}\ndata_file = {folder}/data\nparallel = true\nsigterm = true\n"
            # A process that a test starts finds the test's name there.
            "context = ${PYTEST_CURRENT_TEST-}\npatch =\n    subprocess\n    _exit\n    fork\n"
        )
        measure = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *_OPTIONS]
        done = subprocess.run(
            [*measure, "-p", "contexts", f"--junit-xml={report}", "-o", "junit_family=xunit1", *names],
            cwd=REPOSITORY,
            env=_environment(installed),
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise SystemExit(f"The tests do not start:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        seconds = dict.fromkeys(names, 0.0)
        for case in ElementTree.parse(report).iter("testcase"):
            seconds[case.attrib["file"]] += float(case.attrib["time"])
        lines = _lines(settings, installed)
    failing = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    found = {}
    for name in names:
        own = {path: _of_file(name, by_test) for path, by_test in lines.items()}
        mine = sorted(test for test in failing if test.partition("::")[0] == name)
        found[name] = Covering(seconds[name], mine, {path: by_test for path, by_test in own.items() if by_test})
    return found


def _of_file(name: str, by_test: dict[str, list[int]]) -> dict[str, list[int]]:
    """The lines of one file's tests; what runs on import stands for every file, and once at most."""
    own = {test: lines for test, lines in by_test.items() if test.partition("::")[0] == name}
    whole = {*by_test.get(WHOLE, []), *own.pop(name, [])}
    return own | {WHOLE: sorted(whole)} if whole else own


def _lines(settings: Path, installed: Path) -> dict[str, dict[str, list[int]]]:
    from coverage import Coverage

    measured = Coverage(config_file=str(settings))
    measured.combine()
    data = measured.get_data()
    found: dict[str, dict[str, list[int]]] = {}
    for name, inside in sorted(_INSTALLED.items()):
        for path in sorted((REPOSITORY / name).glob("**/*.py")):
            relative = path.relative_to(REPOSITORY / name).as_posix()
            by_test: dict[str, set[int]] = {}
            for line, contexts in data.contexts_by_lineno(str(installed / inside / relative)).items():
                for context in contexts:
                    by_test.setdefault(_function(context), set()).add(line)
            found[f"{name}/{relative}"] = {test: sorted(lines) for test, lines in by_test.items()}
    return found


def _function(context: str) -> str:
    """The test function of a context: its cases are one, since which there are may depend on the fault."""
    name = context.partition("[")[0].partition(" ")[0]
    return name.partition("::")[0] if context.endswith(" (setup)") else name


def _first_failure(tests: list[str], installed: Path, limit: float) -> str | None:
    """The first test that fails, or what else ended the run."""
    arguments = installed / "tests.txt"
    arguments.write_text("\n".join(tests))
    runner = [sys.executable, "-m", "pytest", *_OPTIONS, "--exitfirst", "--tb=no", f"@{arguments}"]
    process = subprocess.Popen(
        runner,
        cwd=REPOSITORY,
        env=_environment(installed),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return "the limit of time"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode in (0, 5):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return failed[1] if failed else "the start of the tests"


# Each fault starts from nothing: no failing example of a property is remembered, and its examples are the same.
_OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=1"]


def _environment(installed: Path) -> dict[str, str]:
    """The copy stands before everything else on the path; the folder the tests run from does not stand there at all."""
    return os.environ | {
        "PYTHONPATH": str(installed),
        "PYTHONSAFEPATH": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(installed / ".hypothesis"),
    }


def _installed_copy(folder: Path) -> Path:
    for name, inside in _INSTALLED.items():
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / inside, ignore=skip, dirs_exist_ok=True)
    return folder


def _installed_name(path: str) -> str:
    top, _, rest = path.partition("/")
    return f"{_INSTALLED[top]}/{rest}"


def _digest(paths: Iterable[Path], tests: bool = False) -> str:
    """What source and helpers, or with `tests` test files, say; short."""
    seen = hashlib.sha256()
    for path in sorted(paths):
        if path.name.startswith("test_") == tests:
            seen.update(path.read_bytes())
    return seen.hexdigest()[:16]
