"""All that the tool tells of one small program: findings, what a migration makes of it, what an upgrade does to it.

A line `# file: other.py` begins another file of the program, beside the first.
"""

import re
from difflib import unified_diff
from functools import cache

from planning import planned

from mcore_unpatch.editing.edits import Options, splice
from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.fates import fate
from mcore_unpatch.upgrade.run import patches_of
from mcore_unpatch.upgrade.uses import uses_of

PATH = "m.py"
OPTIONS = Options(unsafe_fixes=True, selection=Selection(("",)), target=(0, 19), pinned=lambda _: ((0, 19),))


@cache
def _step() -> tuple[Model, Model]:
    return known.newest((0, 16)), known.newest((0, 19))


def told(source: str) -> str:
    """Findings, the changed lines and remarks of a migration, the patches and uses that an upgrade affects."""
    first, *others = re.split(r"^# file: (\S+)\n", f"{source}\n", flags=re.MULTILINE)
    texts = {PATH: first, **dict(zip(others[::2], others[1::2], strict=True))}
    files = {path: text.encode() for path, text in texts.items()}
    plan, found = planned(files, OPTIONS)
    lines = [_place(one.path) + _finding(one) for one in found]
    for path, text in texts.items():
        after = splice(files[path], [edit for edit in plan.edits if edit.path == path]).decode().splitlines()
        changed = [line for line in unified_diff(text.splitlines(), after, n=0) if line[:2] not in ("--", "++", "@@")]
        lines += [_place(path) + line for line in changed]
    lines += [_place(one.path) + f"{one.line} {one.kind}: {one.text.partition(chr(10))[0]}" for one in plan.remarks]
    project = Project(files.__contains__, files.__getitem__)
    for finding, case in patches_of(Report("/", findings=found), project):
        fated = fate(finding, case, *_step())
        lines.append(_place(finding.path) + f"{finding.line} {fated.urgency}: {' | '.join(fated.reasons)}")
    for use in uses_of(list(files), project, *_step()).affected:
        said = f"{use.line} {use.exception or use.kind}: {use.text} {use.trigger} {use.instead}".rstrip()
        lines.append(_place(use.path) + said)
    return "".join(f"\n{_short(line)}" for line in lines)


def _place(path: str) -> str:
    return "" if path == PATH else f"{path}: "


def _finding(one: Finding) -> str:
    near = [f"{item.role} {item.line}" for item in one.related]
    flags = [name for name in ("temporary", "patches_more") if getattr(one, name)]
    runs = [f"runs on {one.live}"] if str(one.live) != "any" else []
    runs += one.live.depends
    words = [one.shape, one.target, one.confidence, one.seam, one.verdict, one.fix or "", one.scope, one.installed_by]
    words += [one.effect, one.message, one.evidence.partition(". ")[0], *runs, *flags, *near]
    return f"{one.line}-{one.end_line} {one.rule} " + ", ".join(filter(None, words))


def _short(text: str) -> str:
    text = re.sub(r"megatron-core (\d)", r"\1", text)
    return text.replace("megatron.core.", "~.")
