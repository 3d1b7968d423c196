"""Put small faults into a copy of the package, one at a time, and see which ones the tests notice.

python -m tools.mutation --sample 120 --seed 1 --jobs 2 --json .cache/mutation/last.json

A fault is tried with the tests that ran its line, as one run with coverage has shown (`--map` does that run alone; it
is kept under .cache/ for every test file, and made anew when the file, its helpers or the source changed).
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation import report, trial
from tools.mutation.sample import AREAS, area_of, found_again, sample


def main() -> int:
    """Sample, try, report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=120, help="how many faults, shared evenly between the areas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="one area alone; may be repeated")
    parser.add_argument(
        "--again",
        type=Path,
        action="append",
        default=[],
        help="try what an earlier run (--json) did not notice once more",
    )
    parser.add_argument("--map", action="store_true", help="only find out which test file runs which line")
    parser.add_argument("--json", type=Path, default=trial.BUILD / "last.json")
    arguments = parser.parse_args()

    earlier = [row for path in arguments.again for row in json.loads(path.read_text())]
    results = [report.from_json(row) for row in earlier if row["noticed_by"]]
    areas = arguments.area or sorted(AREAS)
    if earlier:
        faults = [fault for row in earlier if not row["noticed_by"] and (fault := found_again(row))]
        areas = sorted({area_of(fault.path) for fault in faults})
    else:
        faults = sample(areas, arguments.sample, arguments.seed)
    covering = trial.coverage_map(areas)
    if arguments.map:
        return 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for number, result in enumerate(pool.map(lambda fault: trial.attempt(fault, covering), faults), 1):
            results.append(result)
            print(f"[{number}/{len(faults)}] {report.line(result)}", flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")
    print(report.table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
