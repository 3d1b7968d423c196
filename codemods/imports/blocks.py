"""Where a new import lands: the sections a file keeps its imports in, and the order inside a section."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from mcore_unpatch.codemods.source import Files, Source, Suite, last_line

Import = ast.Import | ast.ImportFrom
FUTURE, STDLIB, THIRD_PARTY, OWN, RELATIVE = range(5)


@dataclass(frozen=True, eq=False)
class Block:
    """Imports without a blank line between them."""

    nodes: tuple[Import, ...]
    kinds: frozenset[int]

    @property
    def kind(self) -> int | None:
        """The one section all of them belong to."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else None


Renamed = Mapping[Import, str]
Key = tuple[int | str, ...]
_ORDERS: tuple[Callable[[bool, str], Key], ...] = (
    lambda plain, module: (not plain, module.lower()),  # `import x` before `from x import y`
    lambda plain, module: (module.lower(), not plain),  # sorted within the section by module alone
)


@dataclass(frozen=True, eq=False)
class Run:
    """Consecutive import statements of one suite, in blocks."""

    blocks: tuple[Block, ...]

    @cached_property
    def nodes(self) -> list[Import]:
        """All of them."""
        return [node for block in self.blocks for node in block.nodes]

    @cached_property
    def sectioned(self) -> bool:
        """Whether each block is one section, in the usual order."""
        kinds = [block.kind for block in self.blocks]
        known = [kind for kind in kinds if kind is not None]
        return len(known) == len(kinds) and known == sorted(set(known))

    def block_of(self, node: Import) -> Block:
        """The block a statement stands in."""
        return self._block_of[node]

    @cached_property
    def _block_of(self) -> dict[Import, Block]:
        return {node: block for block in self.blocks for node in block.nodes}

    @cached_property
    def order(self) -> Callable[[bool, str], Key] | None:
        """The order the blocks are sorted in, if they are."""
        for order in _ORDERS:
            if all(_is_sorted([order(*_written(node, {})) for node in block.nodes]) for block in self.blocks):
                return order
        return None

    def place(
        self, block: Block, module: str, plain: bool, renamed: Renamed, ignored: Collection[Import]
    ) -> Import | None:
        """The statement of a block before which an import of `module` belongs; None for the end of the block.

        Statements in `renamed` are sorted under the module they will name, those in `ignored` not looked at.
        """
        if order := self.order:
            for node in block.nodes:
                if node not in ignored and order(*_written(node, renamed)) > order(plain, module):
                    return node
        return None

    def in_place(self, block: Block, renamed: Renamed) -> set[Import]:
        """The renamed statements of a block that are sorted where they stand."""
        found: set[Import] = set()
        gap: list[Import] = []  # renamed statements between two that are not
        place = cache(lambda module, plain: self.place(block, module, plain, {}, renamed))
        for node in [*block.nodes, None]:
            if node is not None and node in renamed:
                gap.append(node)
                continue
            fitting = [n for n in gap if not self.order or place(renamed[n], _plain(n)) is node]
            if not self.order or _is_sorted([self.order(*_written(n, renamed)) for n in fitting]):
                found.update(fitting)
            gap = []
        return found


def sort_key(run: Run | None, plain: bool, module: str) -> Key:
    """What statements that come to one place are sorted by."""
    return ((run and run.order) or _ORDERS[0])(plain, module)


def runs(suite: Suite, source: Source, files: Files) -> list[Run]:
    """The runs of imports in a suite."""
    found: list[Run] = []
    blocks: list[list[Import]] = []
    previous: ast.stmt | None = None
    for node in [*suite, None]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            if not blocks or (previous is not None and _apart(previous, node, source)):
                blocks.append([])
            blocks[-1].append(node)
            previous = node
        elif blocks:
            found.append(Run(tuple(_block(nodes, source, files) for nodes in blocks)))
            blocks, previous = [], None
    return found


def kind_of(node: Import, path: str, files: Files) -> int:
    """The section an import belongs to."""
    if isinstance(node, ast.ImportFrom):
        if node.level:
            return RELATIVE
        module = node.module or ""
    else:
        module = node.names[0].name
    top = module.partition(".")[0]
    if top == "__future__":
        return FUTURE
    if top in sys.stdlib_module_names:
        return STDLIB
    at_the_root = (f"{top}/__init__.py", f"src/{top}/__init__.py")
    return OWN if files.locate(path, module, 0) or files.locate(path, top, 0) in at_the_root else THIRD_PARTY


def _block(nodes: list[Import], source: Source, files: Files) -> Block:
    return Block(tuple(nodes), frozenset(kind_of(node, source.path, files) for node in nodes))


def _apart(previous: ast.stmt, node: ast.stmt, source: Source) -> bool:
    return any(source.is_blank(line) for line in range(last_line(previous) + 1, node.lineno))


def _plain(node: Import) -> bool:
    return isinstance(node, ast.Import)


def _written(node: Import, renamed: Renamed) -> tuple[bool, str]:
    """Whether a statement is a plain `import`, and the module it names or will name."""
    if isinstance(node, ast.Import):
        return True, renamed.get(node, node.names[0].name)
    return False, renamed.get(node, "." * node.level + (node.module or ""))


def _is_sorted(keys: list[Key]) -> bool:
    return all(left <= right for left, right in pairwise(keys))
