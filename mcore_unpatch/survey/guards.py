"""Whose branch a place stands in: guards around old code that somebody wrote, or a migration did.

What stands below `except ImportError` is a fallback, whichever package is tried first. Every other guard (a version, a
signature, `hasattr`, a function that asks one of these) is worked out for each release, as for patches.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from mcore_unpatch.code.syntax import ancestors, last_name, walk
from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.findings.finding import DONE, DOWNSTREAM, STAYS, USE, Finding, Live
from mcore_unpatch.findings.verdicts import decided
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import Version, parse_version, within
from mcore_unpatch.patches.lives import lives_at
from mcore_unpatch.records import replace
from mcore_unpatch.stacks.revision import Stack
from mcore_unpatch.survey.core import Core

COMPAT = "mcore_unpatch.compat"
_MISSING, _ANYTHING = {"ImportError", "ModuleNotFoundError", "AttributeError"}, {"Exception", "BaseException"}
_OFFICIAL = (COMPAT, "output_processor")  # what stands on the other side of a guard that asks for the hook


def fallback(node: ast.AST) -> str:
    """What is imported first where a node runs only because that import failed; empty where it runs otherwise."""
    for tried, handler in ancestors(node):
        if isinstance(tried, ast.Try) and isinstance(handler, ast.ExceptHandler) and _catches_missing(tried, handler):
            if found := next(_imported(tried.body), ""):
                return found
    return ""


def _catches_missing(tried: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Whether a handler is the one for a name that is missing."""
    above = tried.handlers[: tried.handlers.index(handler)]
    if any(_is_for_missing(other) for other in above) or not _is_for_missing(handler):
        return False
    caught = _caught(handler)
    return (bool(caught) and caught <= _MISSING) or all(map(_is_quiet, tried.body))


def _is_for_missing(handler: ast.ExceptHandler) -> bool:
    caught = _caught(handler)
    return not caught or bool(caught & (_MISSING | _ANYTHING))


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """The exceptions a handler is for; empty for all of them."""
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {last_name(node) for node in named if node is not None}


def _is_quiet(statement: ast.stmt) -> bool:
    """Imports and plain assignments: if these raise, a name is missing."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    return isinstance(statement, ast.Assign) and not any(isinstance(node, ast.Call) for node in walk(statement))


def reached(core: Core, node: ast.AST) -> Live:
    """The releases on which a node is reached."""
    return Live(*lives_at(core.judge.guards, node, core.megatrons.releases))


def is_before_the_hook(live: Live) -> bool:
    """Whether a place is reached on Megatrons without the hook alone."""
    return _is_before(live, HOOK_SINCE)


def _is_before(live: Live, since: Version) -> bool:
    return bool(live.releases) and not live.newer and parse_version(live.releases[-1]) < since


def mark(findings: list[Finding], core: Core) -> list[Finding]:
    """The findings, those in a fallback with what is tried before them."""
    return [_marked(finding, core) if finding.path in core.index.sources else finding for finding in findings]


def _marked(finding: Finding, core: Core) -> Finding:
    data, module = core.index.sources[finding.path], core.index.module(finding.path)
    nodes = walk(module.tree) if module is not None else ()
    node = next((one for one in nodes if getattr(one, "lineno", 0) == finding.line), None)
    if node is None:
        return finding
    first = fallback(node)
    if first and (finding.live.newer or not within(f"{first}.")):  # of Megatron's own names its releases tell
        finding = replace(finding, fallback=first)
    if finding.shape in DOWNSTREAM:
        finding = replace(finding, live=reached(core, node))
    if not finding.fallback and is_before_the_hook(finding.live):  # a flag or a function tells which side runs
        ways = _OFFICIAL if finding.shape in DOWNSTREAM or _since(finding) == HOOK_SINCE else _OFFICIAL[:1]
        beside = next((way for way in ways if way.encode() in data), "")
        return replace(finding, fallback=beside)
    return finding


def _since(finding: Finding) -> Version:
    """The first release that has the official way; before every release where there is none."""
    row = finding.row
    return row.needs if row is not None and row.verdict != STAYS else (0, 0)


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
        return _done(finding, f"{own[0].path}:{own[0].line}")

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
    return _done(finding, there[0].path)


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
    return _done(finding, f"{uses[0].path}:{uses[0].line}") if done else finding


def _settled(finding: Finding, in_use: Sequence[Stack], required: bool) -> Finding:
    live, first = finding.live, finding.fallback
    since = _since(finding)
    beside = first.startswith(_OFFICIAL)
    bounded = _is_before(live, HOOK_SINCE if beside else since)
    if not (first or bounded):
        return finding
    if not (beside or bounded):  # another package decides: it runs as before, and no edit is made there
        return decided(finding, Verdict(Fate.STAYS, Reason.OTHER_PACKAGE, name=first))
    old = [stack for stack in in_use if any(map(live.on, stack.versions or ((0, 0),)))]
    if bounded and in_use and not old and (required or not first.startswith(COMPAT)):
        return finding  # which no Megatron in use reaches: it can go
    return _done(finding, first if beside else "")


def _done(finding: Finding, name: str) -> Finding:
    """What stands beside its official way, or is for Megatrons without one."""
    return decided(finding, Verdict(Fate.DONE, Reason.BESIDE if name else Reason.OLD_BRANCH, name=name))
