"""Where a new import lands: the sections a file keeps its imports in, and the order inside a section."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mcore_unpatch.codemods.source import Files, Source, Suite, last_line

Import = ast.Import | ast.ImportFrom
FUTURE, STDLIB, THIRD_PARTY, OWN, RELATIVE = range(5)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Run:
    """Consecutive import statements of one suite, in blocks."""

    blocks: tuple[Block, ...]

    @property
    def sectioned(self) -> bool:
        """Whether each block is one section, in the usual order."""
        kinds = [block.kind for block in self.blocks]
        known = [kind for kind in kinds if kind is not None]
        return len(known) == len(kinds) and known == sorted(set(known))

    def block_of(self, node: Import) -> Block:
        """The block a statement stands in."""
        return next(block for block in self.blocks if node in block.nodes)

    @property
    def order(self) -> Callable[[bool, str], Key] | None:
        """The order the blocks are sorted in, if they are."""
        for order in _ORDERS:
            if all(_is_sorted([order(*_plain_and_module(node)) for node in block.nodes]) for block in self.blocks):
                return order
        return None

    def position(
        self, block: Block, module: str, renamed: Renamed, moving: Import | None = None, plain: bool = False
    ) -> Import | None:
        """The statement of a block before which an import of `module` belongs; None for the end of the block.

        Statements in `renamed` are sorted under the module they will name, as they will stand beside the new one.
        """
        order = self.order
        if order is None:
            return None
        for node in block.nodes:
            is_plain, written = _plain_and_module(node)
            if node is not moving and order(is_plain, renamed.get(node, written)) > order(plain, module):
                return node
        return None


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


def _plain_and_module(node: Import) -> tuple[bool, str]:
    if isinstance(node, ast.Import):
        return True, node.names[0].name
    return False, "." * node.level + (node.module or "")


def _is_sorted(keys: list[Key]) -> bool:
    return all(left <= right for left, right in pairwise(keys))
