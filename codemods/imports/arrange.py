"""Edits of one file's imports, from everything that was asked of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.codemods.changes import Asked, Change, Remove, Replace, Rewrite, least_safe
from mcore_unpatch.codemods.imports.blocks import Block, Import, Run
from mcore_unpatch.codemods.imports.editor import ImportEditor, Target
from mcore_unpatch.codemods.imports.entries import (
    Entry,
    Layout,
    entries,
    layout_of,
    render,
    trailing_comment,
    with_module,
)
from mcore_unpatch.codemods.imports.landing import Landing
from mcore_unpatch.codemods.source import Span, Suite, last_line


def arrange(editor: ImportEditor) -> list[Asked]:
    """The changes; they do not overlap."""
    return _Arrangement(editor).changes()


class _Arrangement:
    def __init__(self, editor: ImportEditor) -> None:
        self.editor, self.source = editor, editor.source
        self.moving = editor.moving()
        self.landing = Landing(editor, self.moving)
        self.gone: set[Import] = set()
        self.told: set[Import] = set()  # statements that go, whose comments a name has taken along

    def changes(self) -> list[Asked]:
        found = [change for target in self.editor.in_order() for change in self._land(target)]
        for node in self.editor.leaving:
            if node not in self.gone and node not in self.moving:
                found += self._reduce(node)
        found += [change for one in self.editor.renamed for change in self._rename_plain(*one)]
        for node, module in self.editor.beside:
            reason = least_safe(self.editor.reasons[node])
            self.landing.arrive(self._suite(node), module, f"import {module}", reason, node, plain=True)
        return [*self.landing.changes(), *found, *self._removals()]

    def _suite(self, node: Import) -> Suite:
        return self.source.home[id(node)]

    def _asked(self, node: Import, change: Change) -> Asked:
        """A change of a statement, for the reasons that are known."""
        return Asked(self.source, change, least_safe(self.editor.reasons[node]))

    def _rewrite(self, node: Import, text: str) -> Rewrite:
        return Rewrite(node, text.replace(f"\n{self.source.indentation(node)}", "\n"))

    def _land(self, target: Target) -> Iterator[Asked]:
        reason = least_safe(target.reasons)
        if target.existing is not None:
            have = entries(self.source, target.existing)
            if new := _unknown(self._with_comments(target), have):
                layout = replace(layout_of(self.source, target.existing, self.editor.limit), trailing="")
                text = render(target.module, _merged(have, _ordered(new)), layout)
                yield Asked(self.source, self._rewrite(target.existing, text), reason)
            return
        anchor = target.sources[0] if target.sources else None
        if anchor is not None and self.moving.get(anchor) == target.module:
            yield from self._move(anchor, target)
            return
        layout = Layout(self.source.indentation(target.suite[0]), self.editor.limit)
        text = render(target.module, _ordered(self._with_comments(target)), layout)
        self.landing.arrive(target.suite, target.module, text, reason, anchor)

    def _with_comments(self, target: Target) -> list[Entry]:
        """The names, with what stands above and behind a statement that goes because all its names leave it."""
        names = list(target.names)
        first_at: dict[tuple[str, str | None], int] = {}
        last_at: dict[tuple[str, str | None], int] = {}
        for index, entry in enumerate(names):
            first_at.setdefault((entry.name, entry.alias), index)
            last_at[entry.name, entry.alias] = index
        for node in target.sources:
            if self.editor.left(node) or node in self.moving or node in self.told:
                continue
            self.told.add(node)
            own = [key for alias in node.names if (key := (alias.name, alias.asname)) in first_at]
            first, last = min(map(first_at.__getitem__, own)), max(map(last_at.__getitem__, own))
            names[first] = replace(names[first], above=(*self._above(node), *names[first].above))
            behind = [text for text in (names[last].behind, trailing_comment(self.source, node)) if text]
            names[last] = replace(names[last], behind="  ".join(behind))
        return names

    def _above(self, node: Import) -> list[str]:
        lines = range(self.source.first_with_comments(node), node.lineno)
        return [self.source.line(line).strip() for line in lines]

    def _move(self, node: ast.ImportFrom, target: Target) -> Iterator[Asked]:
        """A statement that names another module from now on: its text stays, names, comments and layout, if it can."""
        layout = layout_of(self.source, node, self.editor.limit)
        text = with_module(self.source, node, target.module)
        if [(entry.name, entry.alias) for entry in target.names] != [(one.name, one.asname) for one in node.names]:
            text = render(target.module, _ordered(self._with_comments(target)), replace(layout, trailing=""))
        elif "\n" not in text and len(layout.indent + text) > max(
            self.editor.limit, len(self.source.line(node.lineno))
        ):
            text = render(target.module, entries(self.source, node), replace(layout, multiline=True, trailing=""))
        if node in self.landing.staying:
            yield Asked(self.source, self._rewrite(node, text), least_safe(target.reasons))
            return
        self.gone.add(node)
        text = f"{self._lead(node)}{text}  {layout.trailing}".rstrip()
        self.landing.arrive(target.suite, target.module, text, least_safe(target.reasons), node)

    def _lead(self, node: Import) -> str:
        """The comment above a statement, and its indentation."""
        above = self.source.line_span(self.source.first_with_comments(node), node.lineno)
        lead = self.source.text_of(Span(above.start, self.source.span(node).start))
        return lead.replace(self.source.newline, "\n").lstrip()

    def _rename_plain(self, node: ast.Import, alias: ast.alias, module: str) -> Iterator[Asked]:
        text = f"{module} as {alias.asname}" if alias.asname else module
        if node not in self.moving or node in self.landing.staying:
            yield self._asked(node, Replace(alias, text))
            return
        self.gone.add(node)
        trailing = layout_of(self.source, node, self.editor.limit).trailing
        text = f"{self._lead(node)}import {text}  {trailing}".rstrip()
        reason = least_safe(self.editor.reasons[node])
        self.landing.arrive(self._suite(node), module, text, reason, node, plain=True)

    def _reduce(self, node: Import) -> Iterator[Asked]:
        """A statement without the names that leave it; without any left it goes."""
        left = self.editor.left(node)
        if not left:
            self.gone.add(node)
        elif isinstance(node, ast.Import):
            shown = ", ".join(f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in left)
            yield self._asked(node, Rewrite(node, f"import {shown}"))
        else:
            kept = [entry for entry in entries(self.source, node) if entry.name in {alias.name for alias in left}]
            layout = replace(layout_of(self.source, node, self.editor.limit), trailing="")
            if len(kept) == 1 and not kept[0].has_comments:
                layout = replace(layout, multiline=False)
            text = render("." * node.level + (node.module or ""), kept, layout)
            yield self._asked(node, self._rewrite(node, text))

    def _removals(self) -> Iterator[Asked]:
        """Whole statements that go, with the blank lines that would otherwise be left over."""
        leaving = {node for node in self.gone if self.source.owns_lines(node)}
        for node in self.gone - leaving:
            yield self._asked(node, Remove(node, node.lineno, node.lineno))
        for suite in {id(suite): suite for suite in map(self._suite, leaving)}.values():
            for run in self.landing.runs(suite):
                empty = {block for block in run.blocks if not self.landing.is_left(block, leaving)}
                for block in run.blocks:
                    if block in empty:
                        first, last = self._lines_of(run, block, empty)
                        ends = [*(last_line(node) for node in block.nodes[:-1]), last]
                        for node, end in zip(block.nodes, ends, strict=True):
                            yield self._asked(node, Remove(node, first, end))
                            first = end + 1
                        continue
                    for node in leaving.intersection(block.nodes):
                        first = self.source.first_with_comments(node)
                        yield self._asked(node, Remove(node, first, last_line(node)))

    def _lines_of(self, run: Run, block: Block, empty: set[Block]) -> tuple[int, int]:
        first, last = self.source.first_with_comments(block.nodes[0]), last_line(block.nodes[-1])
        index = run.blocks.index(block)
        if any(other not in empty for other in run.blocks[index + 1 :]):
            while self.source.is_blank(last + 1):
                last += 1
        elif any(other not in empty for other in run.blocks[:index]):
            while self.source.is_blank(first - 1):
                first -= 1
        else:
            while last < len(self.source.lines) and self.source.is_blank(last + 1):
                last += 1
            while last == len(self.source.lines) and first > 1 and self.source.is_blank(first - 1):
                first -= 1
        return first, last


def _unknown(names: list[Entry], have: list[Entry]) -> list[Entry]:
    known = {(entry.name, entry.alias) for entry in have}
    return [entry for entry in names if (entry.name, entry.alias) not in known]


def _ordered(names: list[Entry]) -> list[Entry]:
    unique = {(entry.name, entry.alias): entry for entry in reversed(names)}
    return sorted(unique.values(), key=_name_key)


def _merged(have: list[Entry], new: list[Entry]) -> list[Entry]:
    keys = [_name_key(entry) for entry in have]
    return sorted([*have, *new], key=_name_key) if keys == sorted(keys) else [*have, *new]


def _name_key(entry: Entry) -> tuple[int, str]:
    """Constants, classes, then the rest: the order import sorters use."""
    name = entry.name
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, name
