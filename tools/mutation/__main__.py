"""Put small faults into a copy of the package, one at a time, and see which ones the tests notice.

python -m tools.mutation --seed 1 --faults 15

A fault is tried with the tests whose words are nearest to it. The faults drawn for a seed and what became of each are
written down after every trial: a run that was cut short goes on where it stopped, and `--again` tries what was not
noticed once more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation import reach, report
from tools.mutation.sample import AREAS, REPOSITORY, sample
from tools.mutation.trial import Bench, Result


def main() -> int:
    """Sample, try, report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=15, help="how many faults of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="one area alone; may be repeated")
    parser.add_argument("--again", action="store_true", help="try what was not noticed once more")
    parser.add_argument("--tests", type=int, default=80, help="how many test functions are tried for a fault")
    parser.add_argument("--seconds", type=float, default=120, help="after how long no further test of a fault is begun")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / ".cache" / "mutation", help="where results are kept"
    )
    parser.add_argument("--list", action="store_true", help="only say which faults were drawn and what became of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many areas are tried at a time")
    arguments = parser.parse_args()
    if not (reach.RECORD / "done").exists() and not arguments.list:
        print("Which tests run what is recorded first, once: the whole suite runs.", flush=True)
        reach.record(arguments.jobs)
    if arguments.jobs > 1 and not arguments.list:
        _each_by_itself(arguments.area or list(AREAS), arguments)
        arguments.list = True
    everything: list[Result] = []
    for area in arguments.area or AREAS:
        kept = arguments.folder / f"seed-{arguments.seed}" / f"{area.replace(' ', '-')}.json"
        if kept.exists():
            results = [report.from_json(row) for row in json.loads(kept.read_text())]
        else:
            results = [Result(fault) for fault in sample(area, arguments.faults, arguments.seed)]
            kept.parent.mkdir(parents=True, exist_ok=True)
        waiting = [at for at, result in enumerate(results) if _is_to_do(result, arguments.again)]
        bench = Bench(AREAS[area][0][0].startswith("compat")) if waiting and not arguments.list else None
        for at in waiting if bench else []:
            results[at] = bench.attempt(results[at].fault, arguments.tests, arguments.seconds)
            kept.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")
            print(f"[{at + 1}/{len(results)}] {report.line(results[at])}", flush=True)
        if bench:
            bench.close()
        everything += results
    print(report.table(everything))
    return 0


def _each_by_itself(areas: list[str], arguments: argparse.Namespace) -> None:
    """A process for each area, as many at a time as are asked for; what they find is written down by them."""
    options = [f"--{name}={getattr(arguments, name)}" for name in ("faults", "seed", "tests", "seconds", "folder")]
    command = [sys.executable, "-m", "tools.mutation", *options, *(["--again"] if arguments.again else [])]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda area: subprocess.run([*command, "--area", area], check=True), areas))


def _is_to_do(result: Result, again: bool) -> bool:
    return result.fault.end > 0 and (result.tried is None or (again and result.noticed_by is None))


if __name__ == "__main__":
    sys.exit(main())
