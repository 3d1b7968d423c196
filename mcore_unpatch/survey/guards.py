"""Whose branch a place stands in: guards around old code that somebody wrote, or a migration did.

What stands below `except ImportError` is a fallback, whichever package is tried first. Every other guard (a version, a
signature, `hasattr`, a function that asks one of these) is worked out for each release, as for patches.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from mcore_unpatch.findings.finding import DOWNSTREAM, USE, Finding, Live
from mcore_unpatch.findings.verdicts import DONE, KEEP
from mcore_unpatch.megatron.answers import answers
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import Version, parse_version, show, within
from mcore_unpatch.records import replace
from mcore_unpatch.scanner.conditions.holding import catches_missing
from mcore_unpatch.scanner.conditions.live import Liveness
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.nodes import first_line, walk
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.revision import Stack

COMPAT = "mcore_unpatch.compat"
_OFFICIAL = (COMPAT, "output_processor")  # what stands on the other side of a guard that asks for the hook


def fallback(tree: ast.Module, line: int) -> str:
    """What is imported first where a line runs only because that import failed; empty where it runs otherwise."""
    found = ""
    for tried in (one for one in _around(tree.body, line) if isinstance(one, ast.Try)):
        for handler in tried.handlers:
            if line in _lines(handler) and catches_missing(tried, tuple(handler.body)):
                found = next(_imported(tried.body), found)
    return found


def reached(project: Project, path: str, line: int) -> Live:
    """The releases on which a line is reached."""
    project.begin()
    return Liveness().at(project.resolver(path).on_line(line))


def is_before_the_hook(live: Live) -> bool:
    """Whether a place is reached on Megatrons without the hook alone."""
    return _is_before(live, HOOK_SINCE)


def _is_before(live: Live, since: Version) -> bool:
    return bool(live.releases) and not live.newer and parse_version(live.releases[-1]) < since


def mark(findings: list[Finding], project: Project) -> list[Finding]:
    """The findings, those in a fallback with what is tried before them."""
    return [_marked(finding, project) if finding.path.endswith(".py") else finding for finding in findings]


def _marked(finding: Finding, project: Project) -> Finding:
    try:
        data = project.data(finding.path)
        first = fallback(project.parsed.tree(finding.path, data), finding.line)
        if first and (finding.live.newer or not within(f"{first}.")):  # of Megatron's own names its releases tell
            finding = replace(finding, fallback=first)
        if finding.shape in DOWNSTREAM:
            finding = replace(finding, live=reached(project, finding.path, finding.line))
    except (OSError, Unreadable, RecursionError):
        return finding
    if not finding.fallback and is_before_the_hook(finding.live):  # a flag or a function tells which side runs
        ways = _OFFICIAL if finding.shape in DOWNSTREAM or _since(finding) == HOOK_SINCE else _OFFICIAL[:1]
        beside = next((way for way in ways if way.encode() in data), "")
        return replace(finding, fallback=beside)
    return finding


def _since(finding: Finding) -> Version:
    """The first release that has the official way; before every release where there is none."""
    row = next((answer for answer in answers() if answer.name == finding.answer), None)
    return row.needs if row is not None and row.verdict != KEEP else (0, 0)


def _around(statements: list[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """The statements around a line, the outermost first."""
    for index in range(bisect_left(statements, line, key=lambda one: one.end_lineno or 0), len(statements)):
        statement = statements[index]
        if line not in _lines(statement):
            break
        yield statement
        suites = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
        for suite in (*suites, *(handler.body for handler in getattr(statement, "handlers", ()))):
            yield from _around(suite, line)


def _lines(node: ast.stmt | ast.ExceptHandler) -> range:
    start = first_line(node) if isinstance(node, ast.stmt) else node.lineno
    return range(start, (node.end_lineno or start) + 1)


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """The modules that statements import, by a call too."""
    for node in (inner for statement in statements for inner in walk(statement)):
        if isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or node.names[0].name}"
        elif isinstance(node, ast.Import):
            yield node.names[0].name
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield next((str(one.value) for one in node.args if isinstance(one, ast.Constant)), "a module")


def settled(findings: list[Finding], in_use: Callable[[str], Sequence[Stack]], required: bool) -> list[Finding]:
    """The findings, those as done that stand beside their official way already.

    `in_use` are the Megatrons that files name, whatever is judged; `required`: the project asks for the package.
    """
    told = [_settled(finding, in_use(finding.path), required) for finding in findings]
    told = [_passed(finding, told) for finding in told]
    told = [_handed_over(finding, told) for finding in told]
    uses: dict[str, list[Finding]] = {}
    for one in told:
        if one.shape == USE and not one.in_test:
            uses.setdefault(one.target, []).append(one)
            uses.setdefault(one.target.rpartition(".")[0], []).append(one)

    def with_its_uses(finding: Finding) -> Finding:
        """What a file of old code defines is done with the places that use it."""
        known = [name for name in uses if _is_in(finding, name)]
        own = [one for name in known for one in uses[name] if one.path != finding.path]
        if finding.shape == USE or finding.verdict == DONE or not own or any(one.verdict != DONE for one in own):
            return finding
        return _as(DONE, finding, f"Line {own[0].line} of {own[0].path} takes it only as a fallback")

    return [with_its_uses(finding) for finding in told]


def _handed_over(finding: Finding, known: list[Finding]) -> Finding:
    """What uses a file of old code is done where all of that is: its functions hand over to the shim."""
    if finding.shape != USE or finding.verdict == DONE or "." not in finding.target:
        return finding
    names = (finding.target, finding.target.rpartition(".")[0])
    there = [
        one
        for one in known
        if one.shape != USE and one.path != finding.path and any(_is_in(one, name) for name in names)
    ]
    if not there or any(one.verdict != DONE or not one.fallback.startswith(COMPAT) for one in there):
        return finding
    return _as(DONE, finding, f"What it uses is done in {there[0].path}")


def _is_in(finding: Finding, name: str) -> bool:
    """Whether a finding is in the module of that name."""
    module = finding.path.removesuffix(".py").replace("/", ".")
    return f".{module}".endswith(f".{name}") and "." in name


def _passed(finding: Finding, known: list[Finding]) -> Finding:
    """What is passed for a patch to read is done with the uses of the patch: its shim reads it too."""
    if finding.shape != USE or "." in finding.target:
        return finding
    uses = [one for one in known if one.rule == finding.rule and "." in one.target and not one.in_test]
    done = bool(uses) and all(one.verdict == DONE for one in uses if one.shape == USE)
    return (
        _as(DONE, finding, f"Line {uses[0].line} of {uses[0].path} has what reads it from the shim")
        if done
        else finding
    )


def _settled(finding: Finding, in_use: Sequence[Stack], required: bool) -> Finding:
    live, first = finding.live, finding.fallback
    since = _since(finding)
    beside = first.startswith(_OFFICIAL)
    bounded = _is_before(live, HOOK_SINCE if beside else since)
    if not (first or bounded):
        return finding
    if not (beside or bounded):  # another package decides: it runs as before, and no edit is made there
        return _as(KEEP, finding, f"It runs only where `{first}` cannot be imported")
    old = [stack for stack in in_use if any(map(live.on, stack.versions or ((0, 0),)))]
    if bounded and in_use and not old and (required or not first.startswith(COMPAT)):
        return finding  # which no Megatron in use reaches: it can go
    why = f"`{first}` is taken first" if beside else f"It runs on megatron-core {live} alone, which has no other way"
    if not bounded:  # which package is there decides, and not the Megatron
        return _as(DONE, finding, why)
    if in_use and not old:
        return _as(DONE, finding, f"{why}. The old branch can go once the project requires mcore-unpatch[compat]")
    names = (
        ", ".join(stack.name for stack in old) or f"the last Megatron before {show(HOOK_SINCE if beside else since)}"
    )
    return _as(DONE, finding, f"{why}. The old branch can go when {names} {'go' if len(old) > 1 else 'goes'}")


def _as(verdict: str, finding: Finding, why: str) -> Finding:
    return replace(finding, assessment=replace(finding.assessment, verdict=verdict, evidence=f"{why}."))
