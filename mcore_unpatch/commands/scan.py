"""`unpatch scan`: the inventory."""

from __future__ import annotations

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, guarded


@guarded
def scan(
    paths: opt.Paths = None,
    output_format: opt.Format = None,
    output_file: opt.OutputFile = None,
    statistics: opt.Statistics = False,
    select: opt.Select = None,
    ignore: opt.Ignore = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    mcore: opt.Mcore = None,
    jobs: opt.Jobs = None,
    no_cache: opt.NoCache = False,
) -> int:
    """List every patch of Megatron Core and what it can become.

    Exit code: 0 when everything was analysed, 2 when something was not. `unpatch check` is the gate for CI.
    """
    from dataclasses import replace

    from mcore_unpatch.commands.output import Progress, into, write
    from mcore_unpatch.scan import scan as run_scan

    config, options = opt.combine(paths, select, ignore, exclude, target_mcore, jobs)
    style = opt.output_format(output_format, config)
    # An inventory shows everything: what CI has accepted is the business of `check`.
    fixes = style is not opt.OutputFormat.github
    options = replace(options, base=None, baseline=None, possible=True, fixes=fixes, cache=not no_cache)
    with Progress() as progress:
        report = run_scan(paths or [], replace(options, source=opt.source(mcore)), progress)
    with into(output_file):
        write(report, style, statistics)
    return EXIT_ERROR if report.errors else EXIT_CLEAN
