"""An import statement on nodes of libcst: its names, each with the comments that speak of it, and what it becomes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import libcst as cst

from mcore_unpatch.records import record, replace

NO_COMMA = cst.MaybeSentinel.DEFAULT


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


def written(module: str, names: Iterable[str], width: int) -> str:
    """A statement that comes."""
    node: Any = cst.parse_statement(f"from {module} import {', '.join(sorted(names))}")
    return _code(node.with_changes(body=[merged(node.body[0], (), width)])).rstrip("\n")


def merged(node: cst.ImportFrom, new: Iterable[str], width: int) -> cst.ImportFrom:
    """A statement with more names; its layout stays, unless a line would be too long."""
    old = _names(node)
    names = _merged(old, [_Name(cst.ImportAlias(cst.Name(name))) for name in new])
    changed = node if names == old else _laid_out(node, names, rows="\n" in _code(node) and len(names) > 1)
    longest = max([width, *map(len, _code(node).split("\n"))]) if names != old else width
    return changed if "\n" in _code(changed) or len(_code(changed)) <= longest else _laid_out(changed, names, rows=True)


def keeping(node: cst.ImportFrom, names: Collection[str], width: int) -> cst.ImportFrom:
    """An import of some of its names alone, each with the comments that speak of it; in rows where it is too long."""
    old = _names(node)
    kept = [name for name in old if name.alias.evaluated_name in names]
    fits = "\n" in _code(node) or len(_code(node)) <= width
    if kept == old and fits:
        return node
    changed = node if kept == old else _laid_out(node, kept, rows="\n" in _code(node))
    return changed if "\n" in _code(changed) or len(_code(changed)) <= width else _laid_out(changed, kept, rows=True)


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


def _merged(have: Sequence[_Name], coming: Iterable[_Name]) -> list[_Name]:
    """All names, each once; sorted, unless those that were there are not."""
    known = {name.key for name in have}
    every = [*have, *sorted((name for name in coming if name.key not in known), key=lambda name: name.key)]
    is_sorted = [*have] == sorted(have, key=lambda name: name.key)
    return sorted(every, key=lambda name: name.key) if is_sorted else every


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
