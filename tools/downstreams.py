"""Migrate clones of public repositories and hold the result to what a maintainer asks of a pull request.

    python tools/downstreams.py FOLDER [--target 0.19.2] [--write] [NAME ...]

For each git repository in FOLDER (or those named): a copy of its tracked files is migrated with `--unsafe-fixes`, for
the stacks that it says it runs and for the target alone. The edited files compile, have no pyflakes finding that they
did not have, no function that was emptied, no import of ours that is not there; a second run changes nothing, `undo`
gives every byte back. `--write`: the table in benchmarks/accuracy.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version
from mcore_unpatch.migrate import run as migration
from mcore_unpatch.report.counts import group_of
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.writing.transaction import undo

PAGE = Path(__file__).parents[1] / "benchmarks" / "accuracy.md"
BEGIN, END = "<!-- downstreams: begin -->\n", "<!-- downstreams: end -->\n"
HEAD = (
    "| repository | for its stacks | for {} | files | do not compile | new pyflakes | emptied | missing imports "
    "| second run | undo | CPU seconds |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)
END_OF_TABLE = (
    "Rewritten or deleted of the findings in code, as `scan` counts them: {} for the stacks that each runs, {} for {}. "
    "With patch files, and with what is told by the name of a method alone: {} and {}.\n"
)


@dataclass
class Run:
    """What became of one repository for one choice of releases."""

    refused: bool = False
    code: tuple[int, int] = (0, 0)  # findings that went, and all
    every: tuple[int, int] = (0, 0)  # with patch files and what is told by name alone
    files: int = 0
    problems: tuple[int, ...] = (0, 0, 0, 0)
    again: bool = False
    exact: bool = True
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether a maintainer could have asked for nothing else."""
        return not any(self.problems) and not self.again and self.exact


def main() -> int:
    """The table on stdout; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default=RELEASES[-1], help="the release to judge for as well")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    names = asked.names or sorted(one.name for one in asked.folder.iterdir() if (one / ".git").exists())
    rows: list[str] = []
    runs: list[tuple[Run, Run]] = []
    seen: set[str] = set()
    for name in names:
        clone = asked.folder / name
        head = _git(clone, "rev-parse", "HEAD").strip()
        if head in seen:  # the same repository under another name
            continue
        seen.add(head)
        own, target = (_migrated(clone, one) for one in (None, parse_version(asked.target)))
        rows.append(f"| {name} {head[:9]} | {' | '.join(_cells(own, target))} |\n")
        runs.append((own, target))
        print(rows[-1], end="", flush=True)
    sums = [_share([getattr(pair[which], what) for pair in runs]) for what in ("code", "every") for which in (0, 1)]
    release = asked.target
    end = END_OF_TABLE.format(*sums[:2], release, *sums[2:])
    table = f"{HEAD.format(release)}{''.join(rows)}\n{end}"
    print(table)
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")
    return 0 if all(run.holds for pair in runs for run in pair) else 1


def _share(counts: list[tuple[int, int]]) -> str:
    done, of = (sum(one) for one in zip(*counts, strict=True))
    return f"{done} of {of} ({100 * done / max(of, 1):.0f} %)"


def _cells(own: Run, target: Run) -> list[str]:
    """Both runs of a repository in one row."""
    settled = ["refused" if run.refused else "{} of {}".format(*run.code) for run in (own, target)]
    problems = [str(sum(both)) for both in zip(own.problems, target.problems, strict=True)]
    again = "changes" if own.again or target.again else "nothing"
    undone = "exact" if own.exact and target.exact else "NOT exact"
    seconds = f"{own.seconds + target.seconds:.1f}"
    return [*settled, f"{own.files}, {target.files}", *problems, again, undone, seconds]


def _migrated(clone: Path, target: Version | None) -> Run:
    """A copy of a repository, migrated and taken back."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_STATE_HOME"] = f"{scratch}/state"
        copy = Path(scratch) / clone.name
        for name in _git(clone, "ls-files", "-z").split("\0"):
            if name and (clone / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(clone / name, copy / name)
        _git(copy, "init", "-q")
        _git(copy, "add", "-A", "-f")
        for entry in _git(clone, "ls-files", "-s", "-z").split("\0"):  # a submodule's commit may be a Megatron's
            facts, _, name = entry.partition("\t")
            if facts.startswith("160000"):
                (copy / name).mkdir(parents=True, exist_ok=True)
                _git(copy, "update-index", "--add", "--cacheinfo", f"160000,{facts.split()[1]},{name}")
        _git(copy, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "as it is")
        return _tried(copy, migration.Request([copy], ScanOptions(target=target), unsafe_fixes=True))


def _tried(copy: Path, request: migration.Request) -> Run:
    started = time.process_time()
    try:
        outcome = migration.migrate(request)
    except UsageError as error:
        print(f"  {copy.name}: {error}", file=sys.stderr)
        return Run(refused=True)
    seconds = time.process_time() - started
    every = [one for one in outcome.survey.findings if not one.in_test]
    code = [one for one in every if group_of(one) == "code"]
    gone = set(outcome.plan.removes)
    before = {one.path: one.before for one in outcome.rewrites}
    after = {one.path: (copy / one.path).read_bytes() for one in outcome.rewrites}
    python = [path for path in after if path.endswith(".py")]
    problems = [
        [path for path in python if not _compiles(after[path])],
        _new_pyflakes(before, after, python),
        [one for path in python for one in _emptied(before[path], after[path])],
        [one for path in python for one in _missing(after[path])],
    ]
    for one in (one for some in problems for one in some):
        print(f"  {copy.name}: {one}", file=sys.stderr)
    again = 0
    with contextlib.suppress(UsageError):  # all that is left needs a newer release
        again = len(migration.preview(request).rewrites)
    with contextlib.suppress(UsageError):
        undo(copy)
    return Run(
        code=(sum(one in gone for one in code), len(code)),
        every=(sum(one in gone for one in every), len(every)),
        files=len(after),
        problems=tuple(map(len, problems)),
        again=bool(again),
        exact=not _git(copy, "status", "--porcelain").strip(),
        seconds=seconds,
    )


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=True, text=True).stdout


def _compiles(data: bytes) -> bool:
    try:
        compile(data, "m.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _new_pyflakes(before: dict[str, bytes], after: dict[str, bytes], paths: list[str]) -> list[str]:
    """What ruff's F rules say of the new files and did not say of the old ones."""
    old, new = (Counter(one for path in paths for one in _pyflakes(path, files[path])) for files in (before, after))
    return [f"{path}: {code} {text}" for path, code, text in (new - old).elements()]


def _pyflakes(path: str, data: bytes) -> list[tuple[str, str, str]]:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--output-format", "json"]
    done = subprocess.run([*ruff, "--stdin-filename", path, "-"], input=data, capture_output=True, check=False)
    return [(path, str(one["code"]), str(one["message"])) for one in json.loads(done.stdout or b"[]")]


def _emptied(before: bytes, after: bytes) -> list[str]:
    """Functions that did something and do nothing now."""
    old, new = ({one.name: one for one in _functions(data)} for data in (before, after))
    return [
        f"{name} is empty" for name, one in new.items() if _is_empty(one) and name in old and not _is_empty(old[name])
    ]


def _functions(data: bytes) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.FunctionDef)]


def _is_empty(function: ast.FunctionDef) -> bool:
    return all(isinstance(one, ast.Pass) or isinstance(getattr(one, "value", 0), ast.Constant) for one in function.body)


def _missing(data: bytes) -> list[str]:
    """Imports of ours that name something which is not there."""
    found = []
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcore_unpatch.compat"):
            module = importlib.import_module(node.module or "")
            found += [f"{node.module} has no {one.name}" for one in node.names if not hasattr(module, one.name)]
    return found


if __name__ == "__main__":
    sys.exit(main())
