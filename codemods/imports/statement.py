"""An import statement on nodes of libcst: its names, each with the comments that speak of it, and what it becomes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import libcst as cst

from mcore_unpatch.codemods.imports.editor import ImportStatement
from mcore_unpatch.records import record, replace


@record
class _Name:
    alias: cst.ImportAlias
    above: tuple[str, ...] = ()  # comments in the lines before it
    behind: tuple[str, ...] = ()
    below: tuple[str, ...] = ()  # before the closing bracket

    @property
    def key(self) -> tuple[int, str, str]:
        """Constants, classes, then the rest: the order import sorters use."""
        name, alias = self.alias.evaluated_name, self.alias.evaluated_alias
        rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
        return rank, name, alias or ""

    def told(self, other: _Name) -> _Name:
        """The same name with the comments of another."""
        both = zip((self.above, self.behind, self.below), (other.above, other.behind, other.below), strict=True)
        return _Name(self.alias, *(tuple(dict.fromkeys(mine + more)) for mine, more in both))


def text(statement: ImportStatement) -> str:
    """A statement that comes."""
    node: Any = cst.parse_statement(f"from {statement.module} import {', '.join(sorted(statement.new))}")
    line = node.with_changes(body=[changed(statement, node.body[0])])
    return _code(line).rstrip("\n")


def changed(statement: ImportStatement, node: Any) -> Any:
    """What becomes of the node of a statement; its layout stays where its names do."""
    if isinstance(node, cst.Import):
        *aliases, last = [alias for alias in node.names if alias.evaluated_name in statement.keeps]
        return node.with_changes(names=[*aliases, last.with_changes(comma=cst.MaybeSentinel.DEFAULT)])
    old, new = _names(node), node
    kept = [name for name in old if name.alias.evaluated_name in statement.keeps]
    names = _merged(kept, [_Name(cst.ImportAlias(cst.Name(name))) for name in statement.new])
    if names != old:
        new = _laid_out(new, names, rows="\n" in _code(node) and len(names) > 1)
    longest = max([statement.editor.source.width - len(statement.indent), *map(len, _code(node).split("\n"))])
    return new if "\n" in _code(new) or len(_code(new)) <= longest else _laid_out(new, names, rows=True)


def keeping(node: cst.ImportFrom, names: Collection[str]) -> cst.ImportFrom:
    """An import of some of its names alone, each with the comments that speak of it."""
    kept = [name for name in _names(node) if name.alias.evaluated_name in names]
    return _laid_out(node, kept, rows="\n" in _code(node))


def in_rows(node: cst.ImportFrom, width: int) -> cst.ImportFrom:
    """An import, its names in a row each where one line would be too long."""
    fits = "\n" in _code(node) or len(_code(node)) <= width
    return node if fits else _laid_out(node, _names(node), rows=True)


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _names(node: Any) -> list[_Name]:
    """The names of a statement. A comment at the end of a line speaks of the name before it, others of the next."""
    commas = [alias.comma for alias in node.names]
    gaps = [
        _gap(node.lpar and node.lpar.whitespace_after),
        *(_gap(getattr(one, "whitespace_before", None), getattr(one, "whitespace_after", None)) for one in commas),
    ]
    names = [_Name(alias, gap[1], after[0]) for alias, gap, after in zip(node.names, gaps, gaps[1:], strict=False)]
    end = _gap(node.rpar and node.rpar.whitespace_before)
    names[0] = replace(names[0], above=gaps[0][0] + names[0].above)
    names[-1] = replace(names[-1], behind=names[-1].behind + end[0], below=gaps[-1][1] + end[1])
    return names


def _gap(*spaces: cst.BaseParenthesizableWhitespace | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The comments at the end of a line and those in the lines that follow."""
    lines = [space for space in spaces if isinstance(space, cst.ParenthesizedWhitespace)]
    behind = tuple(space.first_line.comment.value for space in lines if space.first_line.comment)
    return behind, tuple(line.comment.value for space in lines for line in space.empty_lines if line.comment)


def _merged(have: Iterable[_Name], coming: Iterable[_Name]) -> list[_Name]:
    """All names, each once; sorted, unless those that were there are not."""
    known: dict[tuple[int, str, str], _Name] = {}
    for name in have:
        known[name.key] = known[name.key].told(name) if name.key in known else name
    order = list(known)
    for name in coming:
        known[name.key] = known[name.key].told(name) if name.key in known else name
    arrived = sorted(known.keys() - order)
    return [known[key] for key in (sorted(known) if order == sorted(order) else [*order, *arrived])]


def _laid_out(node: cst.ImportFrom, names: Sequence[_Name], rows: bool) -> cst.ImportFrom:
    """A statement with names in one line, or in a row each if they have comments."""
    space = node.lpar and node.lpar.whitespace_after
    step = space.last_line.value if isinstance(space, cst.ParenthesizedWhitespace) else "    "
    texts = [_code(name.alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for name in names]
    inner = ", ".join(texts)
    if rows or any(name.above or name.behind or name.below for name in names):
        lines = [
            line
            for name, text in zip(names, texts, strict=True)
            for line in (*name.above, "  ".join((f"{text},", *name.behind)), *name.below)
        ]
        inner = "(\n" + "".join(f"{step}{line}\n" for line in lines) + ")"
    new: Any = cst.parse_statement(f"from x import {inner}")
    fields = ("names", "lpar", "rpar", "whitespace_after_import")
    return node.with_changes(**{name: getattr(new.body[0], name) for name in fields})
