"""Put small faults into a copy of the package, one at a time, and see which ones the tests notice.

python -m tools.mutation --sample 120 --seed 1 --jobs 2 --json build/mutation/last.json

A fault is tried with the test files that ran its line, as one run of the whole suite with coverage has shown
(`--map` does that run alone; it is kept under build/ and made anew when a test or a source file changed).
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation import report, trial
from tools.mutation.sample import AREAS, sample


def main() -> int:
    """Sample, try, report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=120, help="how many faults, shared evenly between the areas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="one area alone; may be repeated")
    parser.add_argument("--map", action="store_true", help="only find out which test file runs which line")
    parser.add_argument("--json", type=Path, default=trial.BUILD / "last.json")
    arguments = parser.parse_args()

    areas = arguments.area or sorted(AREAS)
    covering = trial.coverage_map(areas, arguments.jobs)
    if arguments.map:
        return 0
    faults = sample(areas, arguments.sample, arguments.seed)
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda fault: trial.attempt(fault, covering), faults):
            results.append(result)
            print(f"[{len(results)}/{len(faults)}] {report.line(result)}", flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")
    print(report.table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
