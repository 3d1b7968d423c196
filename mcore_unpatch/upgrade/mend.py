"""Edits of lines that a newer release breaks, where there is one way to write them: `upgrade --write`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mcore_unpatch.judge.asked import instead, leaf
from mcore_unpatch.judge.demands import Demand
from mcore_unpatch.library.fact import Parameters
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.sources import Sources
from mcore_unpatch.upgrade.uses import Affected


class ByteEdit(NamedTuple):
    """Bytes of a file in place of others; the path is relative to the top of the project."""

    path: str
    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Mended:
    """One broken line: its edits, or why there are none."""

    use: Affected
    edits: tuple[ByteEdit, ...] = ()
    why_not: str = ""


def mend(report: UpgradeReport, sources: Sources) -> list[Mended]:
    """What can be written of each line that will raise."""
    found = []
    moves = _moves(report)
    for use in report.uses.affected:
        if use.will_raise and use.demand is not None:
            if _is_patched(use, report):
                found.append(Mended(use, (), "a patch of that name stands here, which nothing would call any more"))
                continue
            edits, why_not = _edits(use.demand, report.old, report.new, sources, moves)
            found.append(Mended(use, tuple(edits), why_not))
    return found


def is_moved(use: Affected, report: UpgradeReport) -> bool:
    """Whether only the place of a name changed, so that no source is needed to mend its use."""
    demand = use.demand
    by_module = demand is not None and isinstance(demand.node, ast.ImportFrom | ast.Attribute)
    moved = demand is not None and by_module and use.will_raise and _module_now(demand, report.old, report.new)
    return bool(moved) and not _is_patched(use, report)


def _is_patched(use: Affected, report: UpgradeReport) -> bool:
    """Whether what is read is what a patch of the same file replaces: to read it elsewhere would hide that it fails."""
    here = report.shown(use.path)
    return any(fate.finding.target == use.name and fate.finding.path == here for fate in report.fates)


def _module_now(demand: Demand, old: Model, new: Model) -> str:
    """The module that has a name of another module now; empty where none does."""
    now = instead(demand.on(old).name, new, old)
    if now is None or leaf(now) != leaf(demand.name) or not within(now):
        return ""
    homes = [model.find(name.rpartition(".")[0]) for model, name in ((old, demand.on(old).name), (new, now))]
    return now.rpartition(".")[0] if all(home and home.fact.kind == "module" for home in homes) else ""


def _moves(report: UpgradeReport) -> dict[ast.AST, dict[str, str]]:
    """By import statement: the names that other modules have now, each with its module."""
    found: dict[ast.AST, dict[str, str]] = {}
    for use in report.uses.affected:
        demand = use.demand
        if use.will_raise and demand is not None and isinstance(demand.node, ast.ImportFrom):
            if module := _module_now(demand, report.old, report.new):
                found.setdefault(demand.node, {})[leaf(demand.name)] = module
    return found


def _edits(
    demand: Demand, old: Model, new: Model, sources: Sources, moves: dict[ast.AST, dict[str, str]]
) -> tuple[list[ByteEdit], str]:
    text = _EditedText(demand.at.home.model.data, demand.path)
    if isinstance(demand.node, ast.ImportFrom):
        if leaf(demand.name) not in moves.get(demand.node, {}):
            return [], "Megatron has nothing of that name any more"
        edits = list(text.moved_import(demand.node, moves[demand.node]))
        return edits, "" if edits else "a comment stands between the names"
    if isinstance(demand.node, ast.Call) and demand.call is not None:
        return _call(demand, demand.node, old, new, sources, text)
    if isinstance(demand.node, ast.Attribute):
        if member := _member(demand, old, new, sources):
            return [text.last_name(demand.node, member)], ""
        if module := _module_now(demand, old, new):
            edits = text.moved_attribute(demand.node, module, demand.at.home.model.tree)
            return edits, "" if edits else f"the file has another `{demand.node.attr}`"
        return [], "which name takes its place is not certain"
    return [], "there is more than one way to write it"


def _call(
    demand: Demand, node: ast.Call, old: Model, new: Model, sources: Sources, text: _EditedText
) -> tuple[list[ByteEdit], str]:
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
            edits.append(text.replaced(word, word.arg, renamed))
        elif _has_no_effect(demand.on(old).name, word.arg, old, sources):
            edits.append(text.without(node, word))
        else:
            return [], f"whether `{word.arg}` had an effect is for you to say"
    return edits, ""


def _renamed(name: str, then: Parameters, now: Parameters) -> str:
    """The new name of a parameter, where it alone took the place of another that is gone."""
    gone = [alias for alias in then.names if alias not in now.names]
    fresh = [alias for alias in now.names if alias not in then.names]
    if gone != [name] or len(fresh) != 1 or then.names.index(name) != now.names.index(fresh[0]):
        return ""
    same = then.defaults.get(name) == now.defaults.get(fresh[0]) and (name in then.required) == (
        fresh[0] in now.required
    )
    return fresh[0] if same else ""


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


class _EditedText:
    """The bytes of a file, and where its nodes stand in them."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path = data, path
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def replaced(self, node: ast.AST, before: str, after: str) -> ByteEdit:
        """A name at the beginning of a node."""
        start, _ = self._span(node)
        return ByteEdit(self._path, start, start + len(before.encode()), after.encode())

    def last_name(self, node: ast.Attribute, after: str) -> ByteEdit:
        """The last name of `a.b.c`."""
        _, end = self._span(node)
        return ByteEdit(self._path, end - len(node.attr.encode()), end, after.encode())

    def moved_attribute(self, node: ast.Attribute, module: str, tree: ast.Module) -> list[ByteEdit]:
        """`other.name` as `name`, imported below the last import; nothing where the file knows another `name`."""
        names = {getattr(node, word, None) for node in walk(tree) for word in ("id", "arg", "name", "asname")}
        above = [item for item in tree.body if isinstance(item, ast.Import | ast.ImportFrom)]
        if node.attr in names or not above:
            return []
        at = self._starts[(above[-1].end_lineno or 1) - 1] + (above[-1].end_col_offset or 0)
        line = f"\nfrom {module} import {node.attr}".encode()
        return [ByteEdit(self._path, *self._span(node), node.attr.encode()), ByteEdit(self._path, at, at, line)]

    def without(self, call: ast.Call, word: ast.keyword) -> ByteEdit:
        """A call without one of its arguments: the comma behind it goes too, or the one before."""
        return self._without(*self._span(word), self._span(call)[1])

    def _without(self, start: int, end: int, closing: int) -> ByteEdit:
        """One of several things with commas between them, and its line where it has one of its own."""
        if match := re.compile(rb"\s*,[ \t]*").match(self._data, end, closing):
            after = match.end()
            whole_line = re.compile(rb"\n[ \t]*$").search(self._data, 0, start)
            if whole_line and (newline := re.compile(rb"\n").match(self._data, after)):
                return ByteEdit(self._path, whole_line.start(), newline.start(), b"")
            return ByteEdit(self._path, start, after, b"")
        before = re.compile(rb",\s*$").search(self._data, 0, start)
        return ByteEdit(self._path, before.start() if before else start, end, b"")

    def moved_import(self, node: ast.ImportFrom, moved: dict[str, str]) -> Iterator[ByteEdit]:
        """Names that other modules have now: the module is replaced, or the names go to lines of their own."""
        start, end = self._span(node)
        modules = set(moved.values())
        if len(moved) == len(node.names) and len(modules) == 1:
            old = re.escape((node.module or "").encode())
            if match := re.compile(rb"from\s+(" + old + rb")\b").match(self._data, start, end):
                yield ByteEdit(self._path, match.start(1), match.end(1), modules.pop().encode())
            return
        indent = self._data[self._starts[node.lineno - 1] : start]
        after = "".join(
            f"\n{indent.decode()}from {module} import {_names(node, [name for name in moved if moved[name] == module])}"
            for module in sorted(modules)
        )
        stay = [alias for alias in node.names if alias.name not in moved]
        if len(moved) == 1:
            alias = next(alias for alias in node.names if alias.name in moved)
            yield self._without(*self._span(alias), end)
            yield ByteEdit(self._path, end, end, after.encode())
        elif b"#" not in self._data[start:end]:
            kept = f"from {node.module} import {_names(node, [alias.name for alias in stay])}" if stay else ""
            yield ByteEdit(self._path, start, end, (kept + after if kept else after.lstrip()).encode())


def _names(node: ast.ImportFrom, names: list[str]) -> str:
    """Names as an import statement of the same look writes them: in brackets, line by line, where that did."""
    shown = [f"{one.name} as {one.asname}" if one.asname else one.name for one in node.names if one.name in names]
    if node.end_lineno == node.lineno or len(shown) == 1:
        return ", ".join(shown)
    margin = " " * node.col_offset
    return "(" + "".join(f"\n{margin}    {name}," for name in shown) + f"\n{margin})"


def applied(data: bytes, edits: list[ByteEdit]) -> bytes:
    """The bytes with some edits, which do not overlap."""
    for edit in sorted(set(edits), reverse=True):
        data = data[: edit.start] + edit.text + data[edit.end :]
    return data
