"""Put small faults into a copy of the package, one at a time, and see which ones the tests notice.

python -m tools.mutation --seed 1 --faults 15

A fault is tried with the tests whose words are nearest to it. The faults drawn for a seed and what became of each are
written down after every trial: a run that was cut short goes on where it stopped, and `--again` tries what was not
noticed once more.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.mutation import report
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
    arguments = parser.parse_args()
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


def _is_to_do(result: Result, again: bool) -> bool:
    return result.fault.end > 0 and (result.tried is None or (again and result.noticed_by is None))


if __name__ == "__main__":
    sys.exit(main())
