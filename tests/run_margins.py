"""Prints how much of its tolerance each numeric test uses: python tests/run_margins.py [--all] [PATH ...]

The tests run once as they are. Those that compare numbers run again with two threads, without MKL-DNN, and with every
sum in another order. Exit code 1 if one uses more than half. What is compared bit for bit has no tolerance, and may
fail where sums are shuffled: only numbers count here. Where a test passes because a comparison fails, as those of the
rule itself do, that comparison does not count.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ENOUGH = 0.5
CONDITIONS = ("one thread", "two threads", "without MKL-DNN", "shuffled sums")
OF_THE_RULE = "tests/compat/harness/test_rounding.py"
KERNELS = "tests/compat/triton/interpreted"  # files whose tests run in a process that a test starts


def starting(test: str) -> str:
    """What pytest is to run for it."""
    return "tests/compat/triton/test_interpreted.py" if test.startswith(KERNELS) else test


def measured(tests: list[str], condition: str, jobs: int) -> dict[str, float]:
    """The largest part of its tolerance that each test uses."""
    with tempfile.TemporaryDirectory() as folder:
        file, chosen = Path(folder, "margins"), Path(folder, "tests")
        chosen.write_text("\n".join(tests))
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=no", "-r", "f", "-k", "not 0.18.2"]
        options += ["--ignore", OF_THE_RULE]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "-n", str(jobs), "--dist", "worksteal", f"@{chosen}"],
            env=os.environ | {"MCORE_UNPATCH_MARGINS": str(file), "MCORE_UNPATCH_MARGINS_AS": condition},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        used: dict[str, float] = defaultdict(float)
        for line in file.read_text().splitlines() if file.exists() else []:
            text, _, _, name = line.split("\t", 3)
            part, test = float(text), ast.literal_eval(name)
            if part <= 1 or f"FAILED {starting(test)}" in done.stdout:
                used[test] = max(used[test], part)
        return used


def main() -> int:
    """Run under each condition, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["tests/compat"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="print every test, not only the ten that use most")
    given = parser.parse_args()
    tests: list[str] = given.paths
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for condition in CONDITIONS:
        for test, part in measured(tests, condition, given.jobs).items():
            table[test][condition] = part
        tests = sorted({starting(test) for test in table})
        print(f"{condition}: {sum(condition in row for row in table.values())} tests", flush=True)
    worst = sorted(table, key=lambda test: max(table[test].values()), reverse=True)
    print("\n" + "  ".join(CONDITIONS))
    for test in worst if given.all else worst[:10]:
        parts = (f"{table[test][name]:.2f}" if name in table[test] else "-" for name in CONDITIONS)
        print("  ".join(part.rjust(len(name)) for part, name in zip(parts, CONDITIONS, strict=True)), test)
    above = [test for test in worst if max(table[test].values()) > ENOUGH]
    print(f"{len(above)} of {len(table)} numeric tests use more than {ENOUGH:g} of their tolerance")
    return bool(above)


if __name__ == "__main__":
    raise SystemExit(main())
