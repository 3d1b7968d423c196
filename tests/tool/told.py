"""The facts that the tool tells of one small program: what it finds, what it edits, what an upgrade does to it.

A line `# file: other.py` begins another file of the program, beside the first.
"""

import re
from difflib import unified_diff
from functools import cache
from hashlib import sha256

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
    """A line for each patch, edit and remark, each patch that an upgrade affects, and each use."""
    first, *others = re.split(r"^# file: (\S+)\n", f"{source}\n", flags=re.MULTILINE)
    texts = {PATH: first, **dict(zip(others[::2], others[1::2], strict=True))}
    files = {path: text.encode() for path, text in texts.items()}
    plan, found = planned(files, OPTIONS)
    lines = [_place(one.path) + _finding(one) for one in found]
    for path, text in texts.items():
        after = splice(files[path], [edit for edit in plan.edits if edit.path == path]).decode()
        lines += [_place(path) + _edit(text, after)] if after != text else []
    lines += [_place(one.path) + f"{one.line} {one.kind}" for one in plan.remarks]
    project = Project(files.__contains__, files.__getitem__)
    for finding, case in patches_of(Report("/", findings=found), project):
        fated = fate(finding, case, *_step())
        stated = [f"{one.exception or one.kind} {one.line}" for one in fated.statements]
        lines.append(_place(finding.path) + f"{finding.line} is {', '.join([fated.urgency, *stated])}")
    for use in uses_of(list(files), project, *_step()).affected:
        lines.append(_place(use.path) + f"{use.line} use {use.exception or use.kind} {_short(use.name)}")
    return "".join(f"\n{line}" for line in dict.fromkeys(lines))


def _place(path: str) -> str:
    return "" if path == PATH else f"{path}: "


def _finding(one: Finding) -> str:
    flags = [name for name in ("temporary", "patches_more") if getattr(one, name)]
    runs = [f"on {one.live}"] if str(one.live) != "any" else []
    words = [one.shape, _short(one.target), one.confidence, one.verdict, one.fix or "", one.effect, *runs, *flags]
    return f"{one.line} {one.rule} " + ", ".join(filter(None, words))


def _edit(before: str, after: str) -> str:
    """How many lines go and come, and a digest of those, which tells one edit from another."""
    diff = unified_diff(before.splitlines(), after.splitlines(), n=0)
    changed = [line for line in diff if line[:2] not in ("--", "++", "@@")]
    gone = sum(line.startswith("-") for line in changed)
    return f"edit -{gone} +{len(changed) - gone} {sha256(''.join(changed).encode()).hexdigest()[:6]}"


def _short(text: str) -> str:
    return text.replace("megatron.core.", "~.")
