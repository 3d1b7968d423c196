"""`unpatch scan`: the inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, guarded
from mcore_unpatch.commands.output import Progress, into, write
from mcore_unpatch.report import screen, text
from mcore_unpatch.survey.scan import scan as run_scan

Verbose = Annotated[bool, opt.option("--verbose", "Show every finding in full, as for files that are named.", "-v")]


@guarded
def scan(
    paths: opt.Paths = None,
    output_format: opt.Format = None,
    output_file: opt.OutputFile = None,
    verbose: Verbose = False,
    quiet: opt.Quiet = False,
    select: opt.Select = None,
    ignore: opt.Ignore = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    stack: opt.Stack = None,
    jobs: opt.Jobs = None,
    no_cache: opt.NoCache = False,
) -> int:
    """List every patch of Megatron Core and what it can become.

    On one screen for a folder; in full with --verbose, or for files that are named. An HTML page has the diffs of
    `migrate` with --verbose.
    Exit code: 0 when everything was analysed, 2 when something was not. `unpatch check` is the gate for CI.
    """
    config, options = opt.combine(paths, select, ignore, exclude, target_mcore, jobs, stack=stack)
    style = opt.output_format(output_format, config)
    # An inventory shows everything: what CI has accepted is the business of `check`.
    # What shows no fix does not ask the codemods, which takes longer than the rest.
    bare = style == "github"
    fixes = not bare and not (style == "text" and quiet)
    options = replace(options, base=None, baseline=None, possible=True, fixes=fixes, cache=not no_cache)
    with Progress() as progress:
        report = run_scan(paths or [], options, progress)
    if target_mcore is None:
        report.say_what_is_carried("--target-mcore")
    with into(output_file):
        if not verbose:
            report.proposed = dict  # making the diffs takes as long as the scan
        detailed = verbose or (bool(paths) and all(path.is_file() for path in paths or ()))
        lines = text.lines if detailed or not report.findings else screen.lines
        write(report, style, lines=lines, quiet=quiet)
    return EXIT_ERROR if report.errors else EXIT_CLEAN
