"""`unpatch audit`: run a program and say what became of its Megatron; compare the reports of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from mcore_unpatch.audit.child import SITECUSTOMIZE
from mcore_unpatch.audit.report import AuditReport, LivePatch, differences, join, load
from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, note, reporting
from mcore_unpatch.commands.output import into
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import NO_PATCHES, Finding
from mcore_unpatch.report.lines import count
from mcore_unpatch.survey.scan import scan

_WHAT = "After `--`, the program and its arguments: -- python train.py --lr 1. Or: diff A.json B.json ..."
What = Annotated[list[str] | None, opt.argument(_WHAT)]
Module = Annotated[str | None, typer.Option("-m", help="Run a module, as `python -m` does; its arguments follow `--`.")]
Repo = Annotated[Path, typer.Option(help="The repository whose lines are looked for behind live patches.")]


@guarded
def audit(
    what: What = None,
    module: Module = None,
    repo: Repo = Path(),
    json: opt.Json = False,
    output_file: opt.OutputFile = None,
) -> int:
    """Run a program and report what patched its Megatron, with file and line.

    The report comes at the end, and is kept from the first forward on if the program is killed. Each live patch is
    joined with the line that `unpatch scan` finds, or with the package that it comes from.
    Exit code: that of the program if it fails; else 1 if Megatron was patched, 2 if no process imported Megatron.
    `unpatch audit diff A.json B.json` compares saved reports: 1 if some ranks differ.
    """
    words = list(what or [])
    if words[:1] == ["diff"] and module is None:
        return _diff([Path(word) for word in words[1:]])
    if module is not None:
        words = [sys.executable, "-m", module, *words]
    if not words:
        raise UsageError("Name a program: `unpatch audit -- python train.py`, or `unpatch audit -m package.module`.")
    code, reports = _run(words)
    if not reports:
        note("No process of this program imported megatron.core and lived to report it.")
    _, options = opt.combine([repo])
    scanned = scan([repo], replace(options, base=None, baseline=None))
    shapes = (*NO_PATCHES, "patch-file")
    patches = [one for one in scanned.findings if one.shape not in shapes and one.target and not one.in_test]
    live, never = join(reports, patches, Path(scanned.root).resolve())
    with into(output_file), reporting():
        if json:
            facts = [{"path": one.path, "line": one.line, "rule": one.rule, "target": one.target} for one in never]
            found = {"patches": [asdict(patch) for patch in live], "never_ran": facts}
            data = {"version": 1, "exit_code": code, **found, "reports": [report.to_json() for report in reports]}
            print(dumps(data, indent=2))
        else:
            _write_text(reports, live, never)
    if code:
        return code
    return EXIT_FINDINGS if live else EXIT_CLEAN if reports else EXIT_ERROR


def _run(words: list[str]) -> tuple[int, list[AuditReport]]:
    """Run a program under the audit; its exit code, and what its processes reported."""
    if words[0].endswith(".py"):
        words = [sys.executable, *words]
    with tempfile.TemporaryDirectory(prefix="unpatch-audit-") as folder:
        Path(folder, "sitecustomize.py").write_text(SITECUSTOMIZE)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        try:
            code = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be run: {error.strerror}") from None
        for failed in sorted(Path(folder).glob("failed.*")):
            note(f"mcore-unpatch is not installed for {failed.read_text()}")
        reports = [load(file) for file in sorted(Path(folder).glob("audit.*.json"))]
    return code if code >= 0 else 128 - code, reports


def _write_text(reports: list[AuditReport], live: list[LivePatch], never: list[Finding]) -> None:
    releases = sorted({report.release for report in reports})
    processes = count(len(reports), "process", "processes")
    print(f"{count(len(live), 'deviation')} from megatron-core {', '.join(releases)} in {processes}.")
    for patch in live:
        print(f"  {patch.deviation}")
        if len(patch.ranks) < len(reports):
            print(f"      only on {', '.join(patch.ranks)}")
        if patch.deviation.kind not in ("stale", "file"):
            print(f"      = {patch}")
    for line in dict.fromkeys(str(hook) for report in reports for hook in report.hooks):
        print(f"  hook on {line}")
    for finding in never:
        print(f"  {finding.path}:{finding.line}  {finding.target} was not patched in this run")
    for line in dict.fromkeys(line for report in reports for line in report.notes):
        note(line)


def _diff(files: list[Path]) -> int:
    if len(files) < 2:
        raise UsageError("Name two reports or more: `unpatch audit diff rank0.json rank1.json`.")
    reports = [load(file) for file in files]
    names = [report.rank for report in reports]
    labels = names if len(set(names)) == len(names) and all(names) else [str(file) for file in files]
    rows = differences(list(zip(labels, reports, strict=True)))
    with reporting():
        for said, holders, others in rows:
            print(said)
            print(f"      on {', '.join(holders)}")
            print(f"      not on {', '.join(others)}")
        if not rows:
            print(f"{len(reports)} reports, no difference.")
    return EXIT_FINDINGS if rows else EXIT_CLEAN
