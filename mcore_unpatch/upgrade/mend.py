"""What `upgrade --write` writes: lines that a newer release breaks, where there is one way to write them, and merges.

Under the rules of `migrate`: all files or none, with a journal that `undo` reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcore_unpatch.editing.edits import Edit, NewContent, splice
from mcore_unpatch.editing.source import Source, Span
from mcore_unpatch.judge.demands import Demand
from mcore_unpatch.judge.instead import instead, leaf
from mcore_unpatch.judge.statement import Statement
from mcore_unpatch.library.fact import Parameters
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.known import lacking
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.records import record
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import why_not
from mcore_unpatch.scanner.sources.work_tree import Overlay, WorkTree
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.sources import Sources
from mcore_unpatch.upgrade.uses import Uses, uses_of
from mcore_unpatch.writing import transaction


@record
class Mended:
    """One broken line: its edits, or why there are none."""

    use: Statement
    edits: tuple[Edit, ...] = ()
    why_not: str = ""


def mend(report: UpgradeReport, sources: Sources) -> list[Mended]:
    """What can be written of each line that will raise."""
    mended = []
    uses = [(use, use.demand) for use in report.uses.affected if use.will_raise and use.demand is not None]
    moves: dict[ast.AST, dict[str, str]] = {}  # by import: the names that other modules have now, with their module
    for _, demand in uses:
        if isinstance(demand.node, ast.ImportFrom) and (module := _module_now(demand, report.old, report.new)):
            moves.setdefault(demand.node, {})[leaf(demand.name)] = module
    for use, demand in uses:
        if _is_patched(use, report):
            mended.append(Mended(use, (), "a patch of that name stands here, which nothing would call any more"))
            continue
        edits, why_not = _edits(demand, report, sources, moves)
        mended.append(Mended(use, tuple(edits), why_not))
    return mended


def is_moved(use: Statement, report: UpgradeReport) -> bool:
    """Whether only the place of a name changed, so that no source is needed to mend its use."""
    demand = use.demand
    by_module = demand is not None and isinstance(demand.node, ast.ImportFrom | ast.Attribute)
    moved = demand is not None and by_module and use.will_raise and _module_now(demand, report.old, report.new)
    return bool(moved) and not _is_patched(use, report)


def _is_patched(use: Statement, report: UpgradeReport) -> bool:
    """Whether what is read is what a patch of the same file replaces: to read it elsewhere would hide that it fails."""
    here = report.shown(use.path)
    return any(fate.finding.target == use.name and fate.finding.path == here for fate in report.fates)


def _module_now(demand: Demand, old: Model, new: Model) -> str:
    """The module that has a name of another module now; empty where none does."""
    name = demand.on(old).name
    unread = bool(lacking(old, name))  # then another release tells what it was
    now = instead(name, new, None if unread else old)
    if now is None or leaf(now) != leaf(demand.name) or not within(now):
        return ""
    places = [(new, now)] if unread else [(new, now), (old, name)]
    homes = [model.find(one.rpartition(".")[0]) for model, one in places]
    return now.rpartition(".")[0] if all(home and home.fact.kind == "module" for home in homes) else ""


def _edits(
    demand: Demand, report: UpgradeReport, sources: Sources, moves: dict[ast.AST, dict[str, str]]
) -> tuple[list[Edit], str]:
    source, old, new = report.source(demand.path), report.old, report.new
    if isinstance(demand.node, ast.ImportFrom):
        if leaf(demand.name) not in moves.get(demand.node, {}):
            return [], "where that name is now is not evident"
        edits = list(_moved_import(source, demand.node, moves[demand.node]))
        return edits, "" if edits else "a comment stands between the names"
    if isinstance(demand.node, ast.Call) and demand.call is not None:
        return _call(demand, demand.node, old, new, sources, source)
    if isinstance(demand.node, ast.Attribute):
        if member := _member(demand, old, new, sources):
            ends = [source.span(node).end for node in _alike(demand.node, source)]
            return [_edit(source, Span(end - len(demand.node.attr.encode()), end), member) for end in ends], ""
        if module := _module_now(demand, old, new):
            edits = _moved_attribute(source, demand.node, module)
            return edits, "" if edits else f"the file has another `{demand.node.attr}`, or no import at its top"
        return [], "which name takes its place is not certain"
    return [], "there is more than one way to write it"


def _alike(node: ast.Attribute, source: Source) -> Iterator[ast.Attribute]:
    """An attribute, and the same where it stands again on its line, of which one is told."""
    for other in source.nodes:
        if isinstance(other, ast.Attribute) and other.lineno == node.lineno and ast.dump(other) == ast.dump(node):
            yield other


def _call(
    demand: Demand, node: ast.Call, old: Model, new: Model, sources: Sources, source: Source
) -> tuple[list[Edit], str]:
    then, now = old.called_with(demand.on(old).name), new.called_with(demand.on(new).name)
    if then is None or now is None:
        return [], "what it takes is not evident"
    known = {*now.names, *demand.added}
    gone = [word for word in node.keywords if word.arg and word.arg not in known and not now.any_keyword]
    if not gone:
        passed = all(name in known or now.any_keyword for name in demand.call.keywords) if demand.call else True
        return [], "a value has to be chosen" if passed else "the argument comes from a dictionary"
    edits = []
    for word in gone:
        assert word.arg is not None
        if renamed := _renamed(word.arg, then, now):
            start = source.span(word).start
            edits.append(_edit(source, Span(start, start + len(word.arg.encode())), renamed))
        elif _has_no_effect(demand.on(old).name, word.arg, old, sources):
            edits.append(_without(source, source.span(word), source.span(node).end))
        else:
            return [], f"whether `{word.arg}` had an effect is for you to say"
    return edits, ""


def _renamed(name: str, then: Parameters, now: Parameters) -> str:
    """The new name of a parameter, where it alone took the place of another that is gone."""
    gone = [alias for alias in then.names if alias not in now.names]
    fresh = [alias for alias in now.names if alias not in then.names]
    if gone != [name] or len(fresh) != 1 or then.names.index(name) != now.names.index(fresh[0]):
        return ""
    was, is_now = ((side.defaults.get(one), one in side.required) for side, one in ((then, name), (now, fresh[0])))
    return fresh[0] if was == is_now else ""


def _has_no_effect(name: str, parameter: str, old: Model, sources: Sources) -> bool:
    """Whether the older release's function never read a parameter; told by its source alone."""
    known = old.function(name)
    text = sources.text(old.label, known.name) if known is not None else None
    if text is None:
        return False
    reads = (node for node in walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == parameter)
    return not any(reads) and "locals()" not in text


def _member(demand: Demand, old: Model, new: Model, sources: Sources) -> str:
    """A member of an enum that has another name now: the one new member with the same value."""
    owner = demand.name.rpartition(".")[0]
    before, now = old.find(owner), new.find(owner)
    if before is None or now is None or not any("Enum" in base for base in new.lineage(now.name)):
        return ""
    then, later = (sources.values(model.label, known.name) for model, known in ((old, before), (new, now)))
    value = then.get(leaf(demand.name))
    fresh = [name for name, other in later.items() if other == value and name not in then]
    return fresh[0] if value is not None and len(fresh) == 1 else ""


def _edit(source: Source, span: Span, text: str) -> Edit:
    return Edit(source.path, "", "safe", *span, source.encode(text), "")


def _moved_attribute(source: Source, node: ast.Attribute, module: str) -> list[Edit]:
    """`other.name` as `name`, imported below the last import; nothing where the file knows another `name`."""
    names = {getattr(other, word, None) for other in source.nodes for word in ("id", "arg", "name", "asname")}
    above = [item for item in source.tree.body if isinstance(item, ast.Import | ast.ImportFrom)]
    if node.attr in names or not above:
        return []
    below = _edit(source, Span.at(source.span(above[-1]).end), f"\nfrom {module} import {node.attr}")
    return [_edit(source, source.span(node), node.attr), below]


def _without(source: Source, span: Span, closing: int) -> Edit:
    """One of several things with commas between them goes, and its line where it has one of its own.

    The comma behind it goes too, or the one before.
    """
    start, end, data = *span, source.data
    if match := re.compile(rb"\s*,[ \t]*").match(data, end, closing):
        after = match.end()
        if re.compile(rb"\r?\n").match(data, after):
            blank = re.compile(rb"(?:\r?\n)?[ \t]*$").search(data, 0, start)
            start = blank.start() if blank else start
        return _edit(source, Span(start, after), "")
    before = re.compile(rb",\s*$").search(data, 0, start)
    return _edit(source, Span(before.start() if before else start, end), "")


def _moved_import(source: Source, node: ast.ImportFrom, moved: dict[str, str]) -> Iterator[Edit]:
    """Names that other modules have now: the module is replaced, or the names go to lines of their own."""
    span, modules = source.span(node), set(moved.values())
    if len(moved) == len(node.names) and len(modules) == 1:
        old = re.escape((node.module or "").encode())
        if match := re.compile(rb"from\s+(" + old + rb")\b").match(source.data, *span):
            yield _edit(source, Span(*match.span(1)), modules.pop())
        return
    by_module = {module: [name for name in moved if moved[name] == module] for module in sorted(modules)}
    lines = (f"from {module} import {_names(node, names)}" for module, names in by_module.items())
    after = "".join(f"\n{source.indentation(node)}{line}" for line in lines)
    stay = [alias.name for alias in node.names if alias.name not in moved]
    if len(moved) == 1:
        alias = next(alias for alias in node.names if alias.name in moved)
        yield _without(source, source.span(alias), span.end)
        yield _edit(source, Span.at(span.end), after)
    elif b"#" not in source.data[slice(*span)]:
        kept = f"from {node.module} import {_names(node, stay)}" if stay else ""
        yield _edit(source, span, kept + after if kept else after.lstrip())


def _names(node: ast.ImportFrom, names: list[str]) -> str:
    """Names as an import statement of the same look writes them: in brackets, line by line, where that did."""
    shown = [f"{one.name} as {one.asname}" if one.asname else one.name for one in node.names if one.name in names]
    if node.end_lineno == node.lineno or len(shown) == 1:
        return ", ".join(shown)
    margin = " " * node.col_offset
    return "(" + "".join(f"\n{margin}    {name}," for name in shown) + f"\n{margin})"


# --- writing --------------------------------------------------------------------------------------------------------


def write(
    report: UpgradeReport, mended: Sequence[Mended], merges: Sequence[Edit], conflicts: bool, allowed: tuple[bool, bool]
) -> list[str]:
    """Write the edits that hold, and say which files were changed; `allowed`: in spite of changes, without git."""
    top = Path(report.scanned.top)
    with transaction.begun(top) as state:
        changed = contents(report, mended, merges, conflicts)
        if changed:
            paths = [item.path for item in changed]
            transaction.refuse_unsafe(Path(report.scanned.root), top, paths, *allowed)
            transaction.write(state, changed)
    return [item.path for item in changed]


def contents(
    report: UpgradeReport, mended: Sequence[Mended], merges: Sequence[Edit], conflicts: bool
) -> list[NewContent]:
    """The files as they become: each compiles, unless it is to hold conflicts, and raises less than before."""
    edits = [*merges, *(edit for repair in mended for edit in repair.edits)]
    files = WorkTree(Path(report.scanned.top))
    changed = []
    for path in sorted({edit.path for edit in edits}):
        before = files.read(path)
        after = splice(before, _apart([edit for edit in edits if edit.path == path]))
        broken = why_not(after, path) is not None
        has_conflicts = conflicts and any(edit.path == path and b"<<<<<<< " in edit.replacement for edit in merges)
        if after == before or (broken and not has_conflicts):
            continue
        # Whether what was to be mended is: judged anew, on the new content.
        project = Project(files.exists, Overlay(files.read, {path: after}).read)
        uses = uses_of([path], project, report.old, report.new) if not broken else Uses()
        done = sum(bool(repair.edits) and repair.use.path == path for repair in mended)
        raised = sum(use.will_raise and use.path == path for use in report.uses.affected)
        if broken or sum(use.will_raise for use in uses.affected) <= raised - done:
            changed.append(NewContent(path, before, after))
    return changed


def _apart(edits: list[Edit]) -> list[Edit]:
    """Of edits that overlap the first: a merge of a whole function goes before what stands in it."""
    kept: list[Edit] = []
    for edit in dict.fromkeys(edits):
        if all(edit.end <= other.start or other.end <= edit.start for other in kept):
            kept.append(edit)
    return sorted(kept, key=lambda edit: edit.replacement)  # imports that come to one place
