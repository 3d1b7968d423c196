"""`unpatch migrate` and `unpatch undo`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, complain, guarded, note, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.commands.output import Progress
from mcore_unpatch.editing.placing import coloured
from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import run as migration, table
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.report.lines import count, show
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown
from mcore_unpatch.writing.journal import undo as take_back

Repo = Annotated[list[Path] | None, opt.argument("The repository, or files and folders in it. [default: .]")]
Diff = Annotated[bool, option("--diff", "Print the unified diff and write nothing.")]
Check = Annotated[bool, option("--check", "Write nothing; exit with 1 if anything would change, also with --diff.")]
UnsafeFixes = Annotated[bool, option("--unsafe-fixes", "Also apply edits that need a review, as the report explains.")]
Exact = Annotated[bool, option("--exact", "Only edits that keep every bit of every result.")]
_COMMIT = "One commit for each change, with what and why; the repository's commit hooks run."
Commit = Annotated[bool, option("--commit", _COMMIT)]
Format = Annotated[opt.TextOrJson, typer.Option("--output-format", help="How to write the result.")]


@guarded
def migrate(
    paths: Repo = None,
    diff: Diff = False,
    check: Check = False,
    unsafe_fixes: UnsafeFixes = False,
    exact: Exact = False,
    commit: Commit = False,
    allow_dirty: opt.AllowDirty = False,
    allow_no_vcs: opt.AllowNoVcs = False,
    output_format: Format = opt.TextOrJson.text,
    select: opt.Select = None,
    ignore: opt.Ignore = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    stack: opt.Stack = None,
    jobs: opt.Jobs = None,
) -> int:
    """Rewrite patches to the official hook: all files, or none.

    Exit code: 0 done or nothing to do, 1 with --check if anything would change, 2 a usage error, a refusal to write, or
    a file that could not be analysed.
    """
    _, options = opt.combine(paths, select, ignore, exclude, target_mcore, jobs, stack=stack)
    if exact and unsafe_fixes:
        raise UsageError("--exact and --unsafe-fixes contradict each other: leave one out")
    if commit and (diff or check or allow_dirty):
        raise UsageError("--commit writes and commits: leave out --diff, --check and --allow-dirty")
    request = migration.Request(paths or [], options, unsafe_fixes, exact, commit, allow_dirty, allow_no_vcs)
    run = migration.preview if diff or check else migration.migrate
    with Progress() as progress:
        outcome = run(request, progress=progress)
    done = f"{count(len(outcome.rewrites), 'file was', 'files were')} migrated, but "
    with reporting(done if outcome.written else ""):
        _write(outcome, output_format, diff)
    for error in outcome.errors:
        complain(f"{outcome.shown(error.path)}: {error.message}")
    for line in outcome.survey.notes:
        note(line)
    if outcome.errors:
        return EXIT_ERROR
    return EXIT_FINDINGS if check and outcome.rewrites else EXIT_CLEAN


@guarded
def undo(path: Annotated[Path, opt.argument("The repository.")] = Path()) -> int:
    """Restore every file of the last migration.

    An interrupted migration is undone as well. A file that has changed since is left and named, with exit code 2.
    """
    if not os.path.lexists(path):
        raise UsageError(f"no such file or folder: {shown(path)}")
    folder = path if path.is_dir() else path.parent
    restored = take_back(folder)
    top = project_root(folder.resolve())
    files = count(len(restored), "file")
    with reporting(f"restored {files}, but "):
        print(f"Restored {files}.")
        for name in restored:
            print(f"  {from_here(top / name)}")
    return EXIT_CLEAN


def _write(outcome: Outcome, style: opt.TextOrJson, diff: bool) -> None:
    """Data or the diff go to stdout alone, so that both can be piped; the table follows on stderr then."""
    if style is opt.TextOrJson.json:
        print(json.dumps(outcome.to_json(), indent=2))
        return
    if diff:
        data = outcome.diff()
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            data = coloured(data)  # for a terminal; a pipe gets every byte, for `git apply`
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        if outcome.diff_base != Path.cwd():
            note(f"The paths in this diff are relative to {outcome.diff_base}; apply it there.")
    show(table.lines(outcome, recipes=diff), stderr=diff)
    for title in outcome.commits:
        print(f"Committed: {title}")
