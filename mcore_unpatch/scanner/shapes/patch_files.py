"""`.patch` and `.diff` files that change Megatron's source: each definition their hunks change is a patch of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mcore_unpatch.findings import Finding, Related
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.definitions import Function
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.paths import is_test
from mcore_unpatch.scanner.judging import upstream
from mcore_unpatch.scanner.judging.patched import SHAPE, Patched, Text
from mcore_unpatch.scanner.sources import fragments, segments
from mcore_unpatch.scanner.sources.applying import Fit, Tree
from mcore_unpatch.scanner.sources.fragments import Statement
from mcore_unpatch.scanner.sources.hunks import FileDiff, Hunk, Place, read

_OF_MEGATRON = re.compile(r"(?:^|/)(megatron/(?:core|training)/[\w./-]+)$")
_METHOD = re.compile(r" +(?:async )?def (\w+)")
# Of a patch file that is far larger than what people keep, only the places are told.
_MOST_LINES = 20_000


class Source(NamedTuple):
    """A Megatron source: the folder that holds `megatron`, and its release."""

    folder: Path
    release: str


def findings_in(
    path: str, data: bytes, source: Source | None = None, versions: Sequence[Version] = (), before: Sequence[bytes] = ()
) -> list[Finding]:
    """One finding for each definition that a patch file changes, judged for `versions`.

    `source` tells whether it still applies; `before` are the patch files that have to be applied first.
    """
    tree = Tree(source.folder) if source is not None else None
    for other in before if tree is not None else ():
        list(_changes(read(other), tree, readable=False))
    release = source.release if source is not None else ""
    text = Text(data)
    found: dict[str, Patched] = {}
    for file, change, hunk, fit in _changes(read(data), tree, data.count(b"\n") <= _MOST_LINES):
        own = upstream.Change(change.module, change.name)
        known = found.setdefault(change.target, Patched(file, own, text, versions, release))
        known.change.segments += change.segments
        known.hunks += [hunk] if hunk is not None else []
        known.fits.add(fit)
    return sorted((_finding(path, one) for one in found.values()), key=lambda finding: finding.sort_key)


def _changes(
    files: list[FileDiff], tree: Tree | None, readable: bool
) -> Iterator[tuple[FileDiff, upstream.Change, Hunk | None, str]]:
    """The definitions that each hunk changes, and how it fits a source."""
    for file in files:
        names = [found[1] if (found := _OF_MEGATRON.search(name)) else "" for name in (file.old, file.new)]
        if not any(names):
            continue
        module = _module(names[1] or names[0])
        fits = tree.apply(file, *names) if tree is not None else [Fit("") for _ in file.hunks]
        if not file.hunks or not (file.old and file.new) or not file.path.endswith(".py"):
            hunk = file.hunks[0] if file.hunks else None
            yield file, upstream.Change(module, ""), hunk, fits[0].word if fits else ""
            continue
        for hunk, fit in zip(file.hunks, fits, strict=True):
            place = _in_source(tree, names[0], fit) if tree is not None and fit.line is not None else None
            if not readable:
                yield file, upstream.Change(module, ""), hunk, fit.word
                continue
            for name, segment in segments.read(hunk, place or _placed(hunk, module)).items() or [("", None)]:
                yield file, upstream.Change(module, name, [segment] if segment else []), hunk, fit.word


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _placed(hunk: Hunk, module: str) -> Place:
    """Where the first line of a hunk stands: as its header says, or where Megatron has had these statements."""
    place = hunk.first
    if place.function and not place.cls and not api.in_module(module, place.function):
        owner = api.owner_in(module, place.function)
        place = Place(owner, place.function, 4) if owner else place
    if place.function:
        return place
    if not place.cls:  # a class within a condition: a method in sight may tell it
        below = (found[1] for line in hunk.side("-") if (found := _METHOD.match(line)))
        place = Place(next(filter(None, (api.owner_in(module, name) for name in below)), ""))
    for mark in "-+":
        fragment = fragments.read(tuple(hunk.side(mark)))
        if taker := upstream.taking(module, place, list(fragment.parameters)):
            return taker
        if located := upstream.locate(module, place, _of_one(fragment.statements)):
            return located
    return place


def _of_one(statements: list[Statement]) -> list[Statement]:
    """The first statements that stand in one function: up to the head of another, which stands further out."""
    above = statements[0].depth if statements else 0
    heads = (one.depth < above and isinstance(one.node, Function | ast.ClassDef) for one in statements)
    end = next((number for number, is_head in enumerate(heads) if is_head), len(statements))
    return statements[:end] if above else []


def _in_source(tree: Tree, name: str, fit: Fit) -> Place:
    """The place in a source that stands above a line."""
    places, above = _places_of("\n".join(tree.lines(name))), fit.line or 0
    around = [place for first, last, place in places if first <= above < last]
    return around[-1] if around else Place()


@lru_cache(8)  # the hunks of a file stand together
def _places_of(text: str) -> list[tuple[int, int, Place]]:
    """Where the classes and functions of a file stand, the outer before the inner."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        body = []
    return list(_places(body, Place()))


def _places(body: list[ast.stmt], owner: Place) -> Iterator[tuple[int, int, Place]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            own = Place(node.name, cls_indent=node.col_offset)
            yield node.lineno, node.end_lineno or 0, own
            yield from _places(node.body, own)
        elif isinstance(node, Function):
            yield node.lineno, node.end_lineno or 0, replace(owner, function=node.name, indent=node.col_offset)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in (node.body, getattr(node, "orelse", [])):
                yield from _places(part, owner)


def _finding(path: str, patched: Patched) -> Finding:
    numbers = list(dict.fromkeys(hunk.line for hunk in patched.hunks)) or [patched.file.line]
    row, done, stays = patched.row, patched.done, patched.stays
    promised = row is not None and not stays and not done
    return Finding(
        rule=patched.rule,
        path=path,
        line=numbers[0],
        column=1,
        end_line=numbers[0],
        target=patched.change.target,
        shape=SHAPE,
        seam=row.seam if row else "none",
        message=patched.message,
        replacement=patched.told([row.way])[0] if row is not None and promised else None,
        related=tuple(Related(number, "touches") for number in numbers[1:]),
        in_test=is_test(path),
        answer=row.name if row else "",
        steps=patched.told(row.steps) if row is not None and promised else (),
        breaks=tuple(patched.breaks),
        done=done,
        stays=stays,
        source=patched.text.lines[numbers[0] - 1].decode(errors="replace").rstrip("\r"),
    )
