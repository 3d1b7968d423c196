"""How long `unpatch` takes beside its peers, in one run: `python benchmarks/scan_speed.py [FOLDER] [--runs N]`.

Prints four ratios: a scan of the whole veRL tree over `ast-grep scan` with one rule, `unpatch migrate --diff` and
`unpatch upgrade` over the scan, and `unpatch --help` over `python -c "import typer, rich"`. The peers take turns, so
that a busy machine is busy for all of them; medians count. Without FOLDER, veRL 0.9.1 is downloaded.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

VERL = "verl==0.9.1"
# What is installed has its bytecode: without, each call would compile all modules anew.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
RULE = """\
id: gpt-forward
language: python
rule:
  pattern: GPTModel.forward = $VALUE
"""


def command(name: str) -> str:
    """A program beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is missing: install the development dependencies of this project")
    return found


def download(folder: Path) -> Path:
    """The tree of veRL, unpacked from its wheel."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), VERL], check=True
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "verl")
    return folder / "verl"


def seconds(call: list[str]) -> float:
    """The wall time of one call."""
    started = time.perf_counter()
    subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=ENVIRONMENT)
    return time.perf_counter() - started


def medians(calls: dict[str, list[str]], runs: int) -> dict[str, float]:
    """The median of each call; they take turns, after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            taken = seconds(call)
            if run:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the tree to scan instead of veRL's")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=2, help="processes of the parallel scan")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        tree = arguments.folder or download(Path(temporary))
        rule = Path(temporary, "rule.yml")
        rule.write_text(RULE)
        files = sum(1 for _ in tree.rglob("*.py"))
        jobs = str(arguments.jobs)
        taken = medians(
            {
                "unpatch scan": [command("unpatch"), "scan", str(tree)],
                "ast-grep scan": [command("ast-grep"), "scan", "--rule", str(rule), str(tree)],
                "unpatch scan --jobs 1": [command("unpatch"), "scan", "--jobs", "1", str(tree)],
                f"unpatch scan --jobs {jobs}": [command("unpatch"), "scan", "--jobs", jobs, str(tree)],
                "unpatch migrate --diff": [command("unpatch"), "migrate", "--diff", str(tree)],
                "unpatch upgrade": [command("unpatch"), "upgrade", "--from", "0.17", "--to", "0.19", str(tree)],
                "unpatch --help": [command("unpatch"), "--help"],
                'python -c "import typer, rich"': [sys.executable, "-c", "import typer, rich"],
            },
            arguments.runs,
        )
    print(f"{files} Python files, median of {arguments.runs} runs")
    for name, value in taken.items():
        print(f"  {name:32} {value:7.3f} s")
    scan, peer = taken["unpatch scan"], taken["ast-grep scan"]
    start, imports = taken["unpatch --help"], taken['python -c "import typer, rich"']
    print(f"scan / ast-grep scan               {scan / peer:5.2f}  (to be at most 1)")
    print(f"migrate --diff / scan              {taken['unpatch migrate --diff'] / scan:5.2f}  (to be at most 5)")
    print(f"upgrade / scan                     {taken['unpatch upgrade'] / scan:5.2f}  (to be at most 3)")
    print(f"--help / import typer, rich        {start / imports:5.2f}  (to be at most 1.5)")


if __name__ == "__main__":
    main()
