"""Put small faults into copies of the repository, one at a time, and see which ones the tests notice.

    python -m tools.mutation --seed 1 --faults 17 [--area scanner] [--seconds 150] [--jobs 2]

A fault is tried with the tests that stand nearest to it: files of tests that share its words, the rare ones above all.
What became of each is written down at once, in `.cache/mutation/seed-N.json`; a run that was cut short goes on.
"""

import argparse
import ast
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Lock

from tools.mutation.faults import Fault, faults_in

ROOT = Path(__file__).parents[2]
# Kernels are left out: they run on a GPU, or in an interpreter that takes minutes for each.
AREAS: dict[str, tuple[str, ...]] = {
    "scanner": ("mcore_unpatch/scanner",),
    "judge": tuple(f"mcore_unpatch/{part}" for part in ("judge", "library", "megatron", "stacks", "upgrade")),
    "gate and reports": tuple(
        f"mcore_unpatch/{part}" for part in ("*.py", "commands", "findings", "gate", "report", "repository", "survey")
    ),
    "audit and verify": ("mcore_unpatch/audit", "mcore_unpatch/verify"),
    "migrate": ("mcore_unpatch/editing", "mcore_unpatch/migrate", "mcore_unpatch/writing"),
    "codemods": ("codemods",),
    "operator": ("compat/fused_head",),
    "hook": ("compat/hook",),
    "shims and packing": ("compat/*.py", "compat/verl"),
}
FOLDERS = {"compat": "tests/compat", "codemods": "tests/migrate"}  # of tests; else those of the tool
FIRST = 25  # files of tests that a fault is tried with
GRACE = 60.0  # seconds for the test in which time is up


@dataclass
class Trial:
    """One fault and what became of it: the test that noticed it, or why none did."""

    area: str
    path: str
    line: int
    shown: str
    noticed_by: str = ""
    said: str = ""


def main() -> int:
    """Sample, try, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=17, help="how many faults of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="one area alone; may be repeated")
    parser.add_argument("--again", action="store_true", help="try what was not noticed once more")
    parser.add_argument("--seconds", type=float, default=150, help="how long the tests of one fault may take")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults are tried at a time")
    options = parser.parse_args()
    kept = ROOT / ".cache" / "mutation" / f"seed-{options.seed}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    done = [Trial(**row) for row in json.loads(kept.read_text())] if kept.exists() else []
    done = [trial for trial in done if trial.noticed_by or not options.again]
    known = {(trial.path, trial.shown) for trial in done}
    drawn = [(area, fault) for area in options.area or AREAS for fault in sample(area, options.faults, options.seed)]
    drawn = [(area, fault) for area, fault in drawn if (fault.path, fault.shown) not in known]
    random.Random(options.seed).shuffle(drawn)  # of every area, also where the run is cut short
    lock, copies = Lock(), Queue[Path]()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            copies.put(_copied(Path(folder) / str(number)))

        def attempt(drawn: tuple[str, Fault]) -> None:
            copy = copies.get()
            trial = _tried(*drawn, copy, options.seconds)
            copies.put(copy)
            with lock:
                done.append(trial)
                kept.write_text(json.dumps([asdict(one) for one in done], indent=1) + "\n")
                end = f"noticed by {trial.noticed_by}" if trial.noticed_by else f"NOT noticed, {trial.said}"
                print(f"{trial.path}:{trial.line} {trial.shown[:80]}: {end}", flush=True)

        list(pool.map(attempt, drawn))
    print(table(done))
    return 0


def sample(area: str, size: int, seed: int) -> list[Fault]:
    """The faults of an area to try, the same for the same seed and the same source."""
    texts = {path: (ROOT / path).read_bytes() for path in _sources(area)}
    known = [fault for path, text in texts.items() for fault in faults_in(path, text)]
    random.Random(f"{seed} {area}").shuffle(known)
    return list(islice((fault for fault in known if fault.compiles(texts[fault.path])), size))


def _sources(area: str) -> list[str]:
    found: set[Path] = set()
    for pattern in AREAS[area]:
        found.update(ROOT.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.parent.name != "triton")


def _copied(folder: Path) -> Path:
    """A copy of the repository as it is now; downloads and the environment are shared."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    for shared in (".cache", ".venv-test"):
        (folder / shared).symlink_to(ROOT / shared)
    return folder


# --- one fault ------------------------------------------------------------------------------------------------------


def _tried(area: str, fault: Fault, copy: Path, seconds: float) -> Trial:
    trial = Trial(area, fault.path, fault.line, fault.shown)
    source = (copy / fault.path).read_bytes()
    (copy / fault.path).write_bytes(fault.applied_to(source))
    try:
        failed, trial.said = _first_failure(copy, nearest(fault), seconds)
    finally:
        (copy / fault.path).write_bytes(source)
    if failed and _first_failure(copy, [failed], seconds)[0]:
        trial.said = f"{failed} fails without it"
    elif failed:
        trial.noticed_by = failed
    return trial


def _first_failure(copy: Path, tests: list[str], seconds: float) -> tuple[str, str]:
    """The first test that fails, and else why none did."""
    fast = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=1", "-rfE"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *fast, "-m", "not growth", *tests]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "", "time was up"
        said.seek(0)
        words = said.read()
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (\S+?)(?: - |$)", words)
    return (failed[1] if failed else tests[0], "") if process.returncode == 1 or failed else ("", "all passed")


def nearest(fault: Fault) -> list[str]:
    """The files of tests that share most with a fault."""
    known = _tests()
    seen = Counter(word for words in known.values() for word in words)
    wanted = {word: math.log(len(known) / seen[word]) for word in _words_of(fault) if seen[word]}
    home = FOLDERS.get(fault.path.split("/")[0], "tests/")
    part = Path(fault.path).parts[1]

    def near(test: str) -> float:
        score = sum(weight for word, weight in wanted.items() if word in known[test])
        score *= 2.0 if test.startswith(home) else 0.5
        return score * (2.0 if part in test else 1.0) * (2.0 if "check_forms" in known[test] else 1.0)

    return sorted(known, key=near, reverse=True)[:FIRST]


def _words_of(fault: Fault) -> set[str]:
    """What a test of the fault would speak of: its lines, the functions around them, and who calls those."""
    source = (ROOT / fault.path).read_text()
    defined = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    around = {node.name for node in defined if node.lineno <= fault.line <= (node.end_lineno or 0)}
    lines = source.splitlines()[fault.line - 1 : fault.last_line]
    callers = {name for one in around for name in _callers().get(one, ())}
    return set(_words(" ".join([fault.path, *lines, *around, *(callers if len(callers) < 10 else ())])))


@cache
def _callers() -> dict[str, set[str]]:
    """Which functions of the packages speak of a name."""
    found: dict[str, set[str]] = {}
    for path in (path for top in ("mcore_unpatch", "codemods", "compat") for path in (ROOT / top).glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for inner in ast.walk(node) if isinstance(node, ast.FunctionDef) else ():
                name = inner.id if isinstance(inner, ast.Name) else getattr(inner, "attr", "")
                found.setdefault(name, set()).add(node.name)
    return found


@cache
def _tests() -> dict[str, frozenset[str]]:
    """Each file of tests with its words, those of the tables beside it included."""
    found = {}
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        text = path.read_text()
        beside = (file.read_text() for file in path.parent.glob("*.txt") if "check_forms" in text)
        found[path.relative_to(ROOT).as_posix()] = frozenset(_words("\n".join([str(path), text, *beside])))
    return found


def _words(text: str) -> Iterator[str]:
    for word in re.findall(r"[A-Za-z_]\w+", text):
        yield word
        yield from (part for part in word.lower().split("_") if len(part) > 3 and part != word)


def table(trials: list[Trial]) -> str:
    """Tried and noticed by area, as Markdown."""
    rows = ["| area | faults | noticed | time was up | noticed by none |", "|---|---|---|---|---|"]
    for area in (*AREAS, "all"):
        mine = [trial for trial in trials if area in (trial.area, "all")]
        late = sum(trial.said == "time was up" for trial in mine)
        noticed = sum(bool(trial.noticed_by) for trial in mine)
        rows.append(f"| {area} | {len(mine)} | {noticed} | {late} | {len(mine) - noticed - late} |")
    return "\n".join([*rows, "", f"{noticed / max(1, len(trials)):.0%} of the faults were noticed."])


if __name__ == "__main__":
    sys.exit(main())
