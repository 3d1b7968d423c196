"""Where the imports of one file stand once its edits are made: what keeps its place, and where new statements land."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from mcore_unpatch.codemods.changes import Asked, Insert, Reason
from mcore_unpatch.codemods.imports.blocks import OWN, THIRD_PARTY, Block, Import, Key, Renamed, Run, runs, sort_key
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.source import Suite, last_line


@dataclass(frozen=True, slots=True)
class _Place:
    """Before a line of a suite, the run of imports that goes on there, and the blank lines that set it off."""

    line: int
    run: int  # the line of its first statement
    beside: ast.stmt
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class _Arrival:
    place: _Place
    key: Key
    text: str
    reason: Reason


class Landing:
    """The import statements of a file in their blocks, and those that arrive."""

    def __init__(self, editor: ImportEditor, moving: Renamed) -> None:
        self.editor, self.source, self.moving = editor, editor.source, moving
        self._runs: dict[int, list[Run]] = {}
        self._run: dict[Import, Run] = {}
        self._before: dict[tuple[Block, str, bool], Import | None] = {}
        self._kinds: dict[Block, int | None] = {}
        self._arrivals: list[_Arrival] = []
        self._occupied: set[Block] = set()  # where something arrives
        self.staying = {node for node in moving if not self.source.owns_lines(node)}
        for run in {self._run_of(node) for node in moving}:
            self.staying.update(self._staying(run))
        self._leaving = {node for node in moving if node not in self.staying}

    def runs(self, suite: Suite) -> list[Run]:
        """The runs of imports in a suite."""
        if id(suite) not in self._runs:
            self._runs[id(suite)] = runs(suite, self.source, self.editor.files)
            self._run |= {node: run for run in self._runs[id(suite)] for node in run.nodes}
        return self._runs[id(suite)]

    def _run_of(self, node: Import) -> Run:
        self.runs(self.source.home[id(node)])
        return self._run[node]

    def is_left(self, block: Block, leaving: set[Import]) -> bool:
        """Whether a block still holds a statement when some have left it."""
        return block in self._occupied or not leaving.issuperset(block.nodes)

    def _staying(self, run: Run) -> Iterator[Import]:
        """Statements that name another module and belong where they stand."""
        for block in run.blocks:
            fitting = run.in_place(block, self.moving)
            if not run.sectioned or self._kind(run, block) == THIRD_PARTY:
                yield from fitting

    def _kind(self, run: Run, block: Block) -> int | None:
        """The section of a block; one that moves as a whole is the third-party one if it stands where that belongs."""
        if block not in self._kinds:
            self._kinds[block] = self._find_kind(run, block)
        return self._kinds[block]

    def _find_kind(self, run: Run, block: Block) -> int | None:
        if block.kind == THIRD_PARTY or not all(node in self.moving for node in block.nodes):
            return block.kind
        index = run.blocks.index(block)
        before = [other.kind or 0 for other in run.blocks[:index]]
        after = [other.kind or 0 for other in run.blocks[index + 1 :]]
        fits = all(kind < THIRD_PARTY for kind in before) and all(kind > THIRD_PARTY for kind in after)
        return THIRD_PARTY if fits else block.kind

    def arrive(
        self, suite: Suite, module: str, text: str, reason: Reason, anchor: Import | None = None, plain: bool = False
    ) -> None:
        """A statement comes to a suite, to the run of imports that the anchor stands in."""
        found = self.runs(suite)
        run = self._run_of(anchor) if anchor else (found[0] if found else None)
        place = self._place(suite, run, module, plain, anchor)
        text = text.replace(f"\n{self.source.indentation(suite[0])}", "\n")
        self._arrivals.append(_Arrival(place, sort_key(run, plain, module), text, reason))

    def _place(self, suite: Suite, run: Run | None, module: str, plain: bool, anchor: Import | None) -> _Place:
        if run is None:
            return self._first_import(suite)
        block, number = self._block_for(run, anchor), run.nodes[0].lineno
        if block is None:
            return self._new_block(run, number)
        self._occupied.add(block)
        if (block, module, plain) not in self._before:
            self._before[block, module, plain] = run.place(block, module, plain, self.moving, self._leaving)
        before = self._before[block, module, plain]
        return self._end(block.nodes[-1], number) if before is None else self._start(before, number)

    def _first_import(self, suite: Suite) -> _Place:
        """In a suite without imports: behind its docstring, else before everything."""
        value = suite[0].value if isinstance(suite[0], ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return self._end(suite[0], suite[0].lineno, before="\n")
        return self._start(suite[0], suite[0].lineno, after="\n\n" if hasattr(suite[0], "body") else "\n")

    def _block_for(self, run: Run, anchor: Import | None) -> Block | None:
        third_party = next((block for block in run.blocks if self._kind(run, block) == THIRD_PARTY), None)
        if run.sectioned:
            return third_party
        return run.block_of(anchor) if anchor is not None else third_party or run.blocks[-1]

    def _new_block(self, run: Run, number: int) -> _Place:
        following = next((block for block in run.blocks if (block.kind or 0) >= OWN), None)
        if following is None:
            if all(not self.editor.left(node) for node in run.nodes):  # it takes the place of all that stood here
                self._occupied.add(run.blocks[-1])
                return self._end(run.blocks[-1].nodes[-1], number)
            return self._end(run.blocks[-1].nodes[-1], number, before="\n")
        return self._start(following.nodes[0], number, after="\n")

    def _start(self, node: ast.stmt, run: int, after: str = "") -> _Place:
        return _Place(self.source.first_with_comments(node), run, node, after=after)

    def _end(self, node: ast.stmt, run: int, before: str = "") -> _Place:
        return _Place(last_line(node) + 1, run, node, before)

    def changes(self) -> Iterator[Asked]:
        """The statements that arrive; those that come to one place stand sorted below each other."""
        by_place = attrgetter("place.line", "place.run")
        for _, group in groupby(sorted(self._arrivals, key=by_place), by_place):
            together = sorted(group, key=attrgetter("key"))
            for arrival in together:
                place = together[0].place
                before = place.before if arrival is together[0] else ""
                after = place.after if arrival is together[-1] else ""
                insert = Insert(place.beside, place.line, before + arrival.text + after)
                yield Asked(self.source, insert, arrival.reason)
