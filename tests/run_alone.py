"""Runs every test file by itself, its tests in random order: no test may lean on another that ran before it.

python tests/run_alone.py [--seed N] [--jobs N] [FILE ...]
"""

import argparse
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from limits import patience

TESTS = Path(__file__).parent
LIMIT = 900  # seconds for one file
NO_TESTS = 5  # pytest's exit code where everything in a file is skipped or nothing is there


def shuffled(file: Path, seed: int) -> str:
    """What pytest says of the file, or nothing if all is well."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    try:
        done = subprocess.run(
            [*command, "--order-seed", str(seed), str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(LIMIT),
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT} s"
    return "" if done.returncode in (0, NO_TESTS) else done.stdout[-4000:] + done.stderr[-2000:]


def main() -> int:
    """Exit code 1 if a file fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    files = given.files or sorted(TESTS.rglob("test_*.py"))
    random.Random(given.seed).shuffle(files)
    print(f"{len(files)} files, seed {given.seed}", flush=True)
    failed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for file, said in zip(files, pool.map(lambda file: shuffled(file, given.seed), files), strict=True):
            print(f"{'FAILED' if said else 'passed'} {file}\n{said}".rstrip(), flush=True)
            failed += bool(said)
    print(f"{len(files) - failed} of {len(files)} files pass alone (seed {given.seed})")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
