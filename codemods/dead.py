"""Patches that nobody needs: they never run on the releases of a project, or Megatron does by itself what they do.

A branch goes with its guard, an assignment by itself, each with what nothing else asks for any more. This is no class
of the catalogue: it answers no rule but what may be true of any finding; it takes all findings of a file at once, since
branches lie within each other and share their helpers; and for what is dead no codemod is asked.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from mcore_unpatch.codemods import standing
from mcore_unpatch.codemods.changes import Asked, Change, Reason, Taken, Unwrap, least_safe
from mcore_unpatch.codemods.codemod import COMPAT
from mcore_unpatch.codemods.emptied import Emptied, with_emptied
from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.standing import PROCESSOR
from mcore_unpatch.codemods.syntax import body_of, bound_by_import, bound_in, is_pure
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options, Remark, as_name
from mcore_unpatch.editing.source import Function, Source, lines_of, mentioned
from mcore_unpatch.findings.finding import Finding, Guard
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import NEWEST, Version, parse_version, reached, show
from mcore_unpatch.scanner.sources.nodes import walk

_TITLE = "deletes the branch of a patch that never runs on Megatron Core {} or later"
_NOT_NEEDED = "deletes what Megatron does not need"
_OF_RELEASES = ("__version__", PROCESSOR, COMPAT)
_FOR_THE_NAME = re.compile(r"hasattr|getattr|\bNone\b")  # a condition that asks whether there is a method at all


def delete_dead(
    bench: Workbench, findings: Sequence[Finding], options: Options, taken: Sequence[Asked], with_shims: bool = False
) -> tuple[Contribution, set[Finding], set[Finding]]:
    """Delete the branches of dead patches, and patches without an effect; where no guard makes one dead, say so.

    With it all that never run, and what else no codemod has to be asked about. What is in the way of shims, which need
    a Megatron that does not need it, goes as they come.
    """
    contribution, dead, closed = Contribution(), set[Finding](), set[Finding]()
    # What is deleted in one file may share helpers, and is one edit where it empties a function.
    cuts: defaultdict[str, dict[tuple[int, str], _DeadBranch]] = defaultdict(dict)
    answered: defaultdict[str, list[Finding]] = defaultdict(list)

    def hold(finding: Finding, why: str) -> None:
        contribution.held[finding] = why
        text = f"Not deleted: {why}. {finding.evidence}"
        contribution.remarks.append(Remark(finding.path, finding.line, finding.rule, "by-hand", text))

    def take(finding: Finding, cut: _DeadBranch, guessed: str) -> None:
        missing = standing.missing_import(cut.source, cut.guard, options.judged(finding.path))
        if why := guessed or missing:
            hold(finding, why)
        elif options.applies(cut.reason.level):
            cuts[finding.path].setdefault((cut.guard.lineno, cut.branch), cut)
            answered[finding.path].append(finding)

    idle: list[tuple[Finding, _DeadBranch]] = []
    never = {finding for finding in findings if _is_dead(finding, options.judged(finding.path))}
    restored = {place for finding in findings if finding not in never for place in _restores(finding)}
    for finding in findings:
        versions = options.judged(finding.path)
        if finding not in never:
            if finding.verdict != "delete" or finding.upstream_has or not any(map(finding.live.on, versions)):
                continue
            without = _without_effect(bench, finding)
            if isinstance(without, _DeadBranch):
                idle.append((finding, without))
            elif without:
                hold(finding, without)
            continue
        dead.add(finding)
        reason = Reason(finding.rule, "exact", _TITLE.format(show(min(versions))), finding_line=finding.line)
        guard = _guard(finding, versions)
        cut = _cut(bench, finding.path, guard, reason) if guard and finding.path in bench.editable else None
        if cut is not None and cut.undoes(finding, restored) and cut.is_for_all(findings):
            take(finding, cut, options.guessed(finding.path))
            continue
        oldest, *later = map(show, versions)
        where = f" (see {f'{guard.path}:' if guard.path else 'line '}{guard.line})" if guard is not None else ""
        what = options.guessed(finding.path) or "delete this branch, what it installs, and the tests of it"
        source = bench.readable(finding.path)
        asks = source.line(guard.line) if source is not None and guard is not None and not guard.path else ""
        takes = source is not None and b"signature(" in source.data and not _FOR_THE_NAME.search(asks)
        if finding.shape == "instance-attr" and takes:
            what += ", unless a model of yours overrides the method without these parameters"
        text = f"this never runs on megatron-core {oldest}{' or later' if later else ''}{where}: {what}"
        contribution.remarks.append(Remark(finding.path, finding.line, finding.rule, "left", text))
    for finding, cut in idle:
        guessed = options.guessed(finding.path)
        if with_shims and tuple(finding.target.rsplit(".", 1)) in standing.HOOK:  # these need a release that is known
            cut, guessed = replace(cut, reason=replace(cut.reason, level="exact")), ""
        closed.add(finding)
        take(finding, cut, guessed)
    spans = Taken(taken)
    bench.look_for(*(as_name(name) for one in chain(*answered.values()) for name in one.scope.split(".") if name))
    for path in cuts:
        asked, emptied, staying = _changes(bench, list(cuts[path].values()))
        fits = spans.take([(request.path, request.touches) for request in asked])
        for finding in answered[path]:
            why = next((why for function, why in staying if finding.line in lines_of(function)), "")
            if not why and not fits:
                why = "another edit changes the same lines"
            if why:
                hold(finding, why)
            else:
                contribution.removes.append(finding)
        if fits:
            contribution.asked += asked
            for source, node, name in emptied.imports if asked else ():
                bench.imports(source.path).drop(node, {name}, least_safe(one.reason for one in asked).elsewhere)
    return contribution, dead, closed


def _changes(bench: Workbench, cuts: Sequence[_DeadBranch]) -> tuple[list[Asked], Emptied, list[tuple[Function, str]]]:
    """The branches of one file go with what only they asked for, in other files too; and the functions that stay."""
    source, staying, emptied = cuts[0].source, list[tuple[Function, str]](), Emptied()
    while cuts:
        outer = [cut for cut in cuts if not any(cut.guard in walk(node) for other in cuts for node in other.dead)]
        gone = [node for cut in outer for node in cut.gone]
        whole: dict[ast.AST, Reason] = {node: cut.reason for cut in outer for node in cut.whole}
        helpers = list(unused(source, [cut.guard for cut in outer], gone, bench))
        emptied = with_emptied(bench, {source: [*(node for cut in outer for node in cut.whole), *helpers]})
        if not emptied.why_not or emptied.function is None:
            break
        staying.append((emptied.function, emptied.why_not))
        cuts = [cut for cut in cuts if cut.guard.lineno not in lines_of(staying[-1][0])]
    else:
        return [], Emptied(), staying
    last = least_safe(cut.reason for cut in outer)
    asked = [
        Asked(source, cut.change, cut.reason)
        for cut in outer
        if cut.change is not None and not emptied.holds(source, cut.guard)
    ]
    for where in emptied.statements:
        changes = remove(where, emptied.outermost(where), with_comments=True)
        why = last if where is source else last.elsewhere
        asked += [Asked(where, change, whole.get(change.node, why)) for change in changes]
    return asked, emptied, staying


def _restores(finding: Finding) -> Iterator[tuple[str, int]]:
    """Where the original is put back."""
    return ((finding.path, related.line) for related in finding.related if related.role == "restore")


def _is_dead(finding: Finding, versions: Sequence[Version]) -> bool:
    """Whether a patch is installed on no release from the oldest on.

    What lives on later releases alone is not dead: it is there for the next upgrade.
    """
    alive = [parse_version(release) for release in finding.live.releases]
    never = not finding.live.newer and bool(alive) and max(alive) < versions[0]
    return never and finding.path.endswith(".py")


def _guard(finding: Finding, versions: Sequence[Version]) -> Guard | None:
    """The outermost guard that rules out all of the releases by itself."""
    needed = {release for release in reached(versions[-1]) if parse_version(release) >= versions[0]}
    fitting = [guard for guard in finding.live.guards if needed <= set(guard.rules_out)]
    return min(fitting, key=lambda guard: (bool(guard.path), guard.line), default=None)


@dataclass(frozen=True, eq=False)
class _DeadBranch:
    """One branch that is dead, and what becomes of the statement that it is a part of."""

    source: Source
    guard: ast.stmt
    branch: str
    dead: tuple[ast.stmt, ...]
    reason: Reason
    change: Change | None = None
    whole: tuple[ast.stmt, ...] = ()  # statements that go as they are

    @property
    def gone(self) -> list[ast.AST]:
        """All that is no longer there."""
        return [*self.dead, *self.whole, *([self.guard.test] if isinstance(self.guard, ast.If) else [])]

    @property
    def lines(self) -> set[int]:
        """The lines that are dead."""
        return {line for node in self.dead for line in lines_of(node)}

    def undoes(self, finding: Finding, needed: Collection[tuple[str, int]]) -> bool:
        """Whether what puts the original back goes too, alone it would be a patch itself; or a patch stays for it."""
        return all(place in needed or place[1] in self.lines for place in _restores(finding))

    def is_for_all(self, findings: Sequence[Finding]) -> bool:
        """Whether a loop, which installs a patch for each name that it goes over, installs none of them."""
        if not isinstance(self.guard, ast.For):
            return True
        here = [finding for finding in findings if finding.path == self.source.path and finding.line in self.lines]
        names = getattr(self.guard.iter, "elts", ())
        return len(here) == len(names) and all(finding.verdict == "delete" for finding in here)


def _without_effect(bench: Workbench, finding: Finding) -> _DeadBranch | str:
    """The assignment that makes a patch which is to be deleted wherever it runs, or why it cannot go by itself."""
    if finding.path not in bench.editable or not finding.path.endswith(".py"):
        return ""
    source, name = bench.readable(finding.path), finding.target.rpartition(".")[2]
    node = source.starting.get((finding.line, finding.column - 1)) if source else None
    if source is None or not isinstance(node, ast.Assign) or len(node.targets) > 1 or not source.owns_lines(node):
        return "it is not a plain assignment"
    target = node.targets[0]
    plain = isinstance(target, ast.Attribute) and target.attr == name and isinstance(node.value, ast.Name | ast.Lambda)
    if not plain:
        return "it is not a plain assignment of a function or class"
    if restores := [related.line for related in finding.related if related.role == "restore"]:
        return f"line {restores[0]} puts the original back"
    # What Megatron no longer has may be called by the repository itself.
    here = sum(isinstance(node, ast.Attribute) and node.attr == name for node in source.nodes)
    if known.is_gone(finding.target, NEWEST) and (here > 1 or bench.named_elsewhere(name, finding.path)):
        where = "elsewhere in this file" if here > 1 else "in other files"
        return f"`{name}` is also named {where}, which may mean this one"
    reason = Reason(finding.rule, "behaviour", _NOT_NEEDED, (finding.evidence,), finding.line)
    return _DeadBranch(source, node, "", (), reason, whole=(node,))


def _cut(bench: Workbench, path: str, guard: Guard, reason: Reason) -> _DeadBranch | None:
    """The branch, if it can go by itself."""
    source = bench.readable(path) if not guard.path else None
    if source is None:
        return None
    at = (one for one in source.every(ast.If, ast.Try) if one.lineno == guard.line and one.end_lineno == guard.end_line)
    node = next(at, None)
    if not isinstance(node, ast.If | ast.Try):
        return None
    cut = partial(_DeadBranch, source, node, guard.branch, reason=reason)
    if isinstance(node, ast.If) and is_pure(node.test, _asking(bench, source)):
        return _of_if(cut, source, node, guard.branch)
    return _of_try(cut, source, node, guard.branch) if isinstance(node, ast.Try) else None


def _of_if(cut: Callable[..., _DeadBranch], source: Source, node: ast.If, branch: str) -> _DeadBranch | None:
    if source.line(node.lineno).lstrip().startswith("elif"):
        return None
    if branch == "if":
        left = {"change": Unwrap(node, "orelse")} if node.orelse else {"whole": (node,)}
        return cut(dead=tuple(node.body), **left)
    if branch == "else":
        return cut(dead=tuple(node.orelse), change=Unwrap(node, "body"))
    suite, loop = source.home[id(node)], source.parents[node]
    said = [ast.unparse(statement) for statement in node.body]
    if branch == "after" and isinstance(loop, ast.For) and suite[0] is node and said == ["continue"]:
        return replace(cut(dead=tuple(suite[1:]), whole=(loop,)), guard=loop) if not loop.orelse else None
    if branch == "after" and isinstance(source.parents[node], Function) and _asks_for_the_release(source, node.test):
        behind = tuple(suite[suite.index(node) + 1 :])
        if said in (["return"], ["return None"]) and not node.orelse:
            return cut(dead=behind, whole=(node, *behind))
        if isinstance(node.body[-1], ast.Return) and not node.orelse:
            return cut(dead=behind, change=Unwrap(node, "body"), whole=behind)
    return None


def _asking(bench: Workbench, source: Source) -> set[str]:
    """The functions of a file, and of those it imports from, that only return what a test may ask."""
    imports = ((node.module or "", node.level) for node in source.every(ast.ImportFrom))
    paths = {bench.locate(source.path, *one) for one in imports}
    some = filter(None, (source, *(bench.readable(path) for path in paths if path)))
    functions = [node for each in some for node in each.tree.body if isinstance(node, ast.FunctionDef)]
    return {one.name for one in functions if all(map(_only_returns, body_of(one)))}


def _only_returns(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return) and statement.value is not None and is_pure(statement.value)


def _asks_for_the_release(source: Source, test: ast.expr) -> bool:
    """Whether a test names the version, the hook or a shim, or a value or function that was made from one."""
    names = {node.id for node in walk(test) if isinstance(node, ast.Name)}
    some = source.every(ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef)
    made = [one for one in some if names.intersection(bound_in(getattr(one, "targets", getattr(one, "names", [one]))))]
    return any(word in ast.unparse(node) for node in (test, *made) for word in _OF_RELEASES)


def _of_try(cut: Callable[..., _DeadBranch], source: Source, node: ast.Try, branch: str) -> _DeadBranch | None:
    if node.finalbody or len(node.handlers) != 1:
        return None
    if branch == "except":
        dead = tuple(node.handlers[0].body)
        inside = {id(child) for child in walk(node)}
        kept = [*node.body, *node.orelse]
        bound = {bound_by_import(alias, one) for one in kept if isinstance(one, Import) for alias in one.names}
        named = {name for node in source.nodes if id(node) not in inside for name in mentioned(node)}
        local = not isinstance(source.parents[node], ast.Module)
        if local and all(isinstance(statement, Import) for statement in kept) and bound.isdisjoint(named):
            return cut(dead=dead, whole=(node,))  # it only asked whether the names are there
        return cut(dead=dead, change=Unwrap(node, "body"))
    return cut(dead=(*node.body, *node.orelse), change=Unwrap(node, "handler")) if branch == "try" else None


def unused(source: Source, guards: Sequence[ast.stmt], gone: Sequence[ast.AST], bench: Workbench) -> Iterator[ast.stmt]:
    """Functions and values that only the removed code asks for: of the function around it, or private to the file."""
    inside = {id(child) for node in gone for child in walk(node)}
    candidates = list(dict.fromkeys(candidate for guard in guards for candidate in _candidates(source, guard)))
    while True:
        for name, statement, is_local in candidates:
            mentions = [id(node) for node in source.mentions.get(name, ())]
            if id(statement) in inside or inside.isdisjoint(mentions):
                continue
            own = {id(child) for child in walk(statement)}
            others = [mention for mention in mentions if mention not in own]
            if inside.isdisjoint(others) or not inside.issuperset(others):
                continue
            if is_local or (name.startswith("_") and not bench.named_elsewhere(name, source.path)):
                inside |= own
                yield statement
                break
        else:
            return


def _candidates(source: Source, node: ast.AST) -> Iterator[tuple[str, ast.stmt, bool]]:
    """What the suites around a node bind: the name, the statement, and whether it is of a function."""
    for above in source.above(node):
        if isinstance(above, Function | ast.Module):
            is_local = isinstance(above, Function)
            for statement in above.body:
                if name := _bound(statement, is_local):
                    yield name, statement, is_local


def _bound(statement: ast.stmt, is_local: bool) -> str | None:
    """The name of a function without decorators, or of a value that costs nothing."""
    if isinstance(statement, Function) and not statement.decorator_list:
        return statement.name
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if is_local and isinstance(target, ast.Name) and is_pure(statement.value):  # type: ignore[attr-defined]
        return target.id
    return None
