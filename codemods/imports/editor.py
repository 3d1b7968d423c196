"""Changes of one file's imports: names that move to another module, go, or come anew."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.imports.blocks import OWN, THIRD_PARTY, Block, Import, Run, runs
from mcore_unpatch.codemods.imports.entries import Entry, Layout, entries, layout_of, render, with_module
from mcore_unpatch.codemods.imports.limits import line_limit
from mcore_unpatch.codemods.source import Files, Source, Span, Suite, last_line, suites


@dataclass
class _Target:
    """What one suite is to import from one module."""

    names: list[Entry] = field(default_factory=list)
    sources: list[ast.ImportFrom] = field(default_factory=list)


class ImportEditor:
    """Collects changes of imports, then gives them as replacements of bytes that do not overlap."""

    def __init__(self, source: Source, files: Files) -> None:
        self.source, self.files = source, files
        self._home: dict[int, Suite] = {id(node): suite for suite in suites(source.tree) for node in suite}
        self._suites: dict[int, Suite] = {}
        self._taken: dict[ast.ImportFrom, set[str]] = {}
        self._dropped: dict[Import, set[str]] = {}
        self._targets: dict[tuple[int, str], _Target] = {}
        self._done: set[int] = set()  # statements whose new text is settled
        self._landed: set[int] = set()  # statements in whose block a new one lands
        self._beside: list[tuple[ast.Import, str]] = []
        self._renamed: list[tuple[ast.Import, ast.alias, str]] = []
        self._modules: dict[Import, str] = {}  # statements that move as a whole, and where to
        self._limit: int | None = None

    def move(self, node: ast.ImportFrom, names: set[str], module: str) -> None:
        """Take names (as the statement writes them) from a statement and import them from `module` instead."""
        self._taken.setdefault(node, set()).update(names)
        target = self._target(self._home[id(node)], module)
        target.sources.append(node)
        target.names += [entry for entry in entries(self.source, node) if entry.name in names]

    def drop(self, node: Import, names: set[str]) -> None:
        """Take names away."""
        self._dropped.setdefault(node, set()).update(names)

    def rename(self, node: ast.Import, alias: ast.alias, module: str) -> None:
        """Another module for one part of `import a, b as c`."""
        self._renamed.append((node, alias, module))

    def add_beside(self, node: ast.Import, module: str) -> None:
        """`import module` in the same suite as another import."""
        self._beside.append((node, module))

    def add(self, module: str, names: list[str], *, unused: bool = False) -> None:
        """Import names from `module` at the top of the file; `unused` ones are there for others to import."""
        behind = "# noqa: F401" if unused else ""
        self._target(self.source.tree.body, module).names += [Entry(name, behind=behind) for name in names]

    def changes(self) -> list[Change]:
        """Everything collected, as replacements."""
        found: list[Change] = []
        gone: set[int] = set()
        self._modules = self._moving_as_a_whole()
        for (home, module), target in sorted(self._targets.items(), key=lambda item: item[0][1]):
            found += self._land(self._suites[home], module, target, gone)
        for node in dict.fromkeys([*self._taken, *self._dropped]):
            if id(node) not in gone and id(node) not in self._done:
                found += self._reduce(node, gone)
        found += [change for one in self._renamed for change in self._rename_plain(*one, gone)]
        for node, module in self._beside:
            found.append(self._insert(self._home[id(node)], module, f"import {module}", node, plain=True))
        removed = [node for node in self._all() if id(node) in gone]
        return [*found, *self._removals(removed)]

    def _moving_as_a_whole(self) -> dict[Import, str]:
        moving: dict[Import, str] = {
            target.sources[0]: module
            for (home, module), target in self._targets.items()
            if len(target.sources) == 1
            and not self._left(target.sources[0])
            and _existing(self._suites[home], module) is None
        }
        return moving | {node: module for node, _, module in self._renamed if len(node.names) == 1}

    def _all(self) -> list[Import]:
        return [n for suite in suites(self.source.tree) for n in suite if isinstance(n, ast.Import | ast.ImportFrom)]

    def _target(self, suite: Suite, module: str) -> _Target:
        self._suites[id(suite)] = suite
        return self._targets.setdefault((id(suite), module), _Target())

    @property
    def limit(self) -> int:
        """The longest line of this file."""
        if self._limit is None:
            self._limit = line_limit(self.source, self.files)
        return self._limit

    def _leaving(self, node: Import) -> set[str]:
        taken = self._taken.get(node, set()) if isinstance(node, ast.ImportFrom) else set()
        return taken | self._dropped.get(node, set())

    def _left(self, node: Import) -> list[ast.alias]:
        leaving = self._leaving(node)
        return [alias for alias in node.names if alias.name not in leaving]

    def _land(self, suite: Suite, module: str, target: _Target, gone: set[int]) -> list[Change]:
        existing = _existing(suite, module)
        if existing is not None:
            return self._merge(existing, target)
        whole = [node for node in target.sources if not self._left(node)]
        anchor = target.sources[0] if target.sources else None
        if len(target.sources) == 1 and whole and len(target.names) == len(whole[0].names):
            return self._rename(suite, whole[0], module, gone)
        names = _ordered(target.names)
        if anchor is not None and anchor in whole:
            self._done.add(id(anchor))
            layout = replace(layout_of(self.source, anchor, self.limit), trailing="")
            return [Change(self.source.span(anchor), render(module, names, layout), anchor)]
        text = render(module, names, Layout(_indent(self.source, suite), self.limit))
        return [self._insert(suite, module, text, anchor)]

    def _rename(self, suite: Suite, node: ast.ImportFrom, module: str, gone: set[int]) -> list[Change]:
        """A statement that moves as a whole keeps its text: names, comments, layout."""
        text = with_module(self.source, node, module)
        layout = layout_of(self.source, node, self.limit)
        if "\n" not in text and len(layout.indent + text) > max(self.limit, self._length(node)):
            text = render(module, entries(self.source, node), replace(layout, multiline=True, trailing=""))
        run = _run_of(runs(suite, self.source, self.files), node)
        if self._stays(run, node, module) or not self.source.owns_lines(node):
            self._done.add(id(node))
            return [Change(self.source.span(node), text, node)]
        above = self.source.line_span(self.source.first_with_comments(node), node.lineno)
        lead = self.source.text_of(Span(above.start, self.source.span(node).start)).replace(self.source.newline, "\n")
        gone.add(id(node))
        tail = f"  {layout.trailing}" if layout.trailing else ""
        return [self._insert(suite, module, lead.lstrip() + text + tail, node, moving=True)]

    def _rename_plain(self, node: ast.Import, alias: ast.alias, module: str, gone: set[int]) -> list[Change]:
        text = f"{module} as {alias.asname}" if alias.asname else module
        suite = self._home[id(node)]
        run = _run_of(runs(suite, self.source, self.files), node)
        if len(node.names) > 1 or not self.source.owns_lines(node) or self._stays(run, node, module):
            return [Change(self.source.span(alias), text, node)]
        gone.add(id(node))
        trailing = layout_of(self.source, node, self.limit).trailing
        text = f"import {text}  {trailing}".rstrip()
        return [self._insert(suite, module, text, node, moving=True, plain=True)]

    def _length(self, node: ast.stmt) -> int:
        return len(self.source.line(node.lineno))

    def _stays(self, run: Run, node: Import, module: str) -> bool:
        """Whether the renamed statement belongs where it stands."""
        block = run.block_of(node)
        sorted_here = run.position(block, module, self._modules, node, isinstance(node, ast.Import)) is _next(
            block, node
        )
        if not run.sectioned:
            return run.order is None or sorted_here
        if run.order is None and block.kind == THIRD_PARTY:
            return True
        index = run.blocks.index(block)
        if block.nodes == (node,):
            before = run.blocks[index - 1].kind if index else None
            after = run.blocks[index + 1].kind if index + 1 < len(run.blocks) else None
            return (before is None or before < THIRD_PARTY) and (after is None or after > THIRD_PARTY)
        return block.kind == THIRD_PARTY and sorted_here

    def _insert(
        self, suite: Suite, module: str, text: str, anchor: Import | None, moving: bool = False, plain: bool = False
    ) -> Change:
        """A new statement at its place among the imports of a suite."""
        source, found = self.source, runs(suite, self.source, self.files)
        indent = _indent(source, suite)
        run = _run_of(found, anchor) if anchor else (found[0] if found else None)
        if run is None:
            return self._first_import(suite, f"{indent}{text}\n")
        block = self._block_for(run, anchor)
        if block is None:
            return self._new_block(run, indent, text)
        self._landed.add(id(block.nodes[0]))
        before = run.position(block, module, self._modules, anchor if moving else None, plain)
        if before is not None:
            start = source.line_span(source.first_with_comments(before), before.lineno).start
            return Change(Span.at(start), f"{indent}{text}\n")
        return self._after(block.nodes[-1], f"{indent}{text}")

    def _first_import(self, suite: Suite, text: str) -> Change:
        """In a suite without imports: behind its docstring, else before everything."""
        value = suite[0].value if isinstance(suite[0], ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return self._after(suite[0], f"\n{text}".rstrip("\n"))
        line = self.source.first_with_comments(suite[0])
        gap = "\n\n" if hasattr(suite[0], "body") else "\n"
        return Change(Span.at(self.source.line_span(line, line).start), text + gap)

    def _block_for(self, run: Run, anchor: Import | None) -> Block | None:
        if run.sectioned:
            return next((block for block in run.blocks if block.kind == THIRD_PARTY), None)
        if anchor is not None:
            return run.block_of(anchor)
        return next((block for block in run.blocks if block.kind == THIRD_PARTY), run.blocks[-1])

    def _new_block(self, run: Run, indent: str, text: str) -> Change:
        following = next((block for block in run.blocks if (block.kind or 0) >= OWN), None)
        if following is None:
            return self._after(run.blocks[-1].nodes[-1], f"\n{indent}{text}")
        node = following.nodes[0]
        start = self.source.line_span(self.source.first_with_comments(node), node.lineno).start
        return Change(Span.at(start), f"{indent}{text}\n\n")

    def _after(self, node: ast.stmt, text: str) -> Change:
        last = last_line(node)
        end = self.source.line_span(last, last).end
        ended = self.source.lines[last - 1].endswith((b"\n", b"\r"))
        return Change(Span.at(end), f"{text}\n" if ended else f"\n{text}")

    def _merge(self, existing: ast.ImportFrom, target: _Target) -> list[Change]:
        have = entries(self.source, existing)
        new = [entry for entry in target.names if (entry.name, entry.alias) not in {(e.name, e.alias) for e in have}]
        if not new:
            return []
        layout = replace(layout_of(self.source, existing, self.limit), trailing="")
        text = render(existing.module or "", _merged(have, new), layout)
        return [Change(self.source.span(existing), text, existing)]

    def _reduce(self, node: Import, gone: set[int]) -> list[Change]:
        """A statement without the names that leave it; without any left it goes."""
        left = self._left(node)
        if not left:
            gone.add(id(node))
            return []
        span = self.source.span(node)
        if isinstance(node, ast.Import):
            shown = ", ".join(f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in left)
            return [Change(span, f"import {shown}", node)]
        kept = [entry for entry in entries(self.source, node) if entry.name in {alias.name for alias in left}]
        layout = replace(layout_of(self.source, node, self.limit), trailing="")
        module = "." * node.level + (node.module or "")
        if not any(entry.above or entry.behind for entry in kept):
            one_line = render(module, kept, replace(layout, multiline=False))
            if len(kept) == 1 or not layout.multiline:
                return [Change(span, one_line, node)]
        return [Change(span, render(module, kept, layout), node)]

    def _removals(self, nodes: list[Import]) -> list[Change]:
        """Whole statements that go, with the blank lines that would otherwise be left over."""
        found = [self._without_separator(node) for node in nodes if not self.source.owns_lines(node)]
        leaving = {id(node) for node in nodes if self.source.owns_lines(node)}
        for suite in {id(suite): suite for suite in (self._home[id(node)] for node in nodes)}.values():
            for run in runs(suite, self.source, self.files):
                landed = self._landed_in(run)
                empty = [b for b in run.blocks if id(b) not in landed and leaving.issuperset(map(id, b.nodes))]
                for block in run.blocks:
                    if block in empty:
                        found.append(self._block_removal(run, block, empty))
                    else:
                        found += [self._removal(node) for node in block.nodes if id(node) in leaving]
        return found

    def _landed_in(self, run: Run) -> set[int]:
        return {id(block) for block in run.blocks if any(id(node) in self._landed for node in block.nodes)}

    def _removal(self, node: Import) -> Change:
        return Change(self.source.line_span(self.source.first_with_comments(node), last_line(node)), "", node)

    def _block_removal(self, run: Run, block: Block, empty: list[Block]) -> Change:
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
        return Change(self.source.line_span(first, last), "", block.nodes[0])

    def _without_separator(self, node: Import) -> Change:
        """`import a; b = 1` without its first part."""
        span = self.source.span(node)
        rest = self.source.data[span.end :]
        stripped = rest.lstrip(b" \t")
        if stripped.startswith(b";"):
            after = stripped[1:].lstrip(b" \t")
            return Change(Span(span.start, span.end + len(rest) - len(after)), "", node)
        return Change(span, "pass", node)


def _existing(suite: Suite, module: str) -> ast.ImportFrom | None:
    return next((n for n in suite if isinstance(n, ast.ImportFrom) and n.module == module and not n.level), None)


def _run_of(found: list[Run], node: Import) -> Run:
    return next(run for run in found if any(node in block.nodes for block in run.blocks))


def _next(block: Block, node: Import) -> Import | None:
    index = block.nodes.index(node)
    return block.nodes[index + 1] if index + 1 < len(block.nodes) else None


def _indent(source: Source, suite: Suite) -> str:
    return source.indentation(suite[0])


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
