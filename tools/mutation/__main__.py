"""Put small faults into a copy of the package, one at a time, and see which ones the tests notice.

python -m tools.mutation --seed 1 --faults 17

A fault is tried with the tests that run its lines, those whose words are nearest to it first; what none of them notices
is shown to the type checker. The faults drawn for a
seed and what became of each are written down after every trial: a run that was cut short goes on where it stopped, and
`--again` tries what was not noticed once more.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tools.mutation import reach, report
from tools.mutation.bench import take_a_bench
from tools.mutation.sample import AREAS, REPOSITORY, sample
from tools.mutation.trial import FAILING, Result, attempt
from tools.mutation.typed import with_types


def main() -> int:
    """Sample, try, report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=17, help="how many faults of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="one area alone; may be repeated")
    parser.add_argument("--again", action="store_true", help="try what was not noticed once more")
    parser.add_argument("--seconds", type=float, default=150, help="after how long no further test of a fault is begun")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / ".cache" / "mutation", help="where results are kept"
    )
    parser.add_argument("--as-recorded", action="store_true", help="record no tests that are new, or not recorded yet")
    parser.add_argument("--list", action="store_true", help="only say which faults were drawn and what became of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults are tried at a time")
    arguments = parser.parse_args()
    folder = arguments.folder / f"seed-{arguments.seed}"
    kept = {area: folder / f"{area.replace(' ', '-')}.json" for area in arguments.area or AREAS}
    results = {area: _drawn(area, file, arguments) for area, file in kept.items()}
    waiting = [
        (area, at) for area in results for at, result in enumerate(results[area]) if _is_to_do(result, arguments.again)
    ]
    if waiting and not arguments.list:
        if not arguments.as_recorded:
            reach.record(arguments.jobs)
        folder.mkdir(parents=True, exist_ok=True)
        FAILING.unlink(missing_ok=True)
        waiting.sort(key=lambda place: place[1])  # of every area, also where the run is cut short
        with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), initializer=take_a_bench) as pool:
            trials = {
                pool.submit(attempt, results[area][at].fault, arguments.seconds): (area, at) for area, at in waiting
            }
            for number, trial in enumerate(as_completed(trials), start=1):
                area, at = trials[trial]
                results[area][at] = trial.result()
                _keep(kept[area], results[area])
                print(f"[{number}/{len(trials)}] {report.line(results[area][at])}", flush=True)
    if not arguments.list:
        of_fault = {result.fault: (area, at) for area in results for at, result in enumerate(results[area])}
        for result in with_types(result for own in results.values() for result in own):
            area, at = of_fault[result.fault]
            results[area][at] = result
            _keep(kept[area], results[area])
            print(f"types: {report.line(result)}", flush=True)
    print(report.table([result for own in results.values() for result in own]))
    return 0


def _drawn(area: str, kept: Path, arguments: argparse.Namespace) -> list[Result]:
    """The faults of an area: those of an earlier run with what became of them, else a new sample."""
    if kept.exists():
        return [report.from_json(row) for row in json.loads(kept.read_text())]
    return [Result(fault) for fault in sample(area, arguments.faults, arguments.seed)]


def _keep(file: Path, results: list[Result]) -> None:
    file.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")


def _is_to_do(result: Result, again: bool) -> bool:
    return result.fault.end > 0 and (result.tried is None or (again and result.noticed_by is None))


if __name__ == "__main__":
    sys.exit(main())
