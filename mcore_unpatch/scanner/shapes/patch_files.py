"""`.patch` and `.diff` files that change Megatron's source: each function a hunk changes is a patch of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mcore_unpatch.findings import Finding, Related
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.paths import is_test
from mcore_unpatch.scanner.sources.hunks import Hunk, Place, read

_OF_MEGATRON = re.compile(r"(?:^|/)(megatron/(?:core|training)/[\w./-]+)$")
_RULE = "MCU608"


class Source(NamedTuple):
    """A Megatron source: the folder that holds `megatron`, and its release."""

    folder: Path
    release: str


@dataclass(slots=True)
class _Change:
    """What the hunks of one file do to one definition."""

    file: str
    hunks: list[Hunk] = field(default_factory=list)
    fits: set[str] = field(default_factory=set)  # how the hunks fit the source: `applies`, `done` or `fails`


def findings_in(path: str, data: bytes, source: Source | None = None) -> list[Finding]:
    """One finding for each definition that a patch file changes; `source` tells whether it still applies."""
    changes: dict[str, _Change] = {}
    for name, hunk in list(read(data)):
        file = _OF_MEGATRON.search(name)
        if file is None:
            continue
        fits, place = _fitted(hunk, file[1], source) if source is not None else ("", None)
        module = file[1].removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        whole = not hunk.side("-")  # a file that is added
        for changed in (not whole and hunk.changed(place or _known(hunk.first, module))) or {"": None}:
            target = f"{module}.{changed}" if changed and file[1].endswith(".py") else module
            change = changes.setdefault(target, _Change(file[1]))
            if hunk not in change.hunks:
                change.hunks.append(hunk)
            change.fits.add(fits)
    lines = data.split(b"\n")
    found = [_finding(path, target, change, lines, source) for target, change in changes.items()]
    return sorted(found, key=lambda finding: finding.sort_key)


def _known(place: Place, module: str) -> Place:
    """The place a header names; a method that stands there without its class belongs to the one that has it."""
    if not place.function or place.cls or api.in_module(module, place.function):
        return place
    owner = api.owner_in(module, place.function)
    return Place(owner, place.function, 4) if owner else place


def _fitted(hunk: Hunk, file: str, source: Source) -> tuple[str, Place | None]:
    """How a hunk fits a source, and the place of its first line there."""
    path = source.folder / file
    old, new = hunk.side("-"), hunk.side("+")
    if not path.is_file():
        return ("fails" if old else "applies"), None
    lines, places = _read(path.read_text(encoding="utf-8", errors="replace"))
    for side, word in ((old, "applies"), (new, "done")):
        at = _position(side, lines, hunk.start)
        if at is not None:
            around = [place for first, last, place in places if first < at <= last]
            return word, around[-1] if around else Place()
    return "fails", None


def _position(wanted: list[str], lines: list[str], start: int) -> int | None:
    """Where lines stand in a file, counted from 1: the place nearest to the one that is expected."""
    if not wanted:
        return None
    last = len(lines) - len(wanted)
    fitting = (at for at in range(last + 1) if lines[at] == wanted[0] and lines[at : at + len(wanted)] == wanted)
    nearest = min(fitting, key=lambda at: abs(at + 1 - start), default=None)
    return None if nearest is None else nearest + 1


@lru_cache(8)  # the hunks of a file stand together
def _read(text: str) -> tuple[list[str], list[tuple[int, int, Place]]]:
    """The lines of a file, and where its classes and functions stand, the outer before the inner."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        body = []
    return text.splitlines(), list(_places(body, ""))


def _places(body: list[ast.stmt], owner: str) -> Iterator[tuple[int, int, Place]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.end_lineno or 0, Place(node.name)
            yield from _places(node.body, node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or 0, Place(owner, node.name, node.col_offset)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in (node.body, getattr(node, "orelse", [])):
                yield from _places(part, owner)


def _finding(path: str, target: str, change: _Change, lines: list[bytes], source: Source | None) -> Finding:
    first, *others = change.hunks
    module = change.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    row = _answer(target, module)
    short = ".".join(target.split(".")[-2:]) if target != module else change.file
    said, breaks, done = [f"changes `{short}`" + (f" in {len(change.hunks)} hunks" if others else "")], [], ""
    on = f"megatron-core {source.release}" if source is not None else ""
    if "fails" in change.fits:
        breaks = [f"no longer applies to {on}"]
    elif change.fits == {"done"}:
        done = f"Megatron has it: {on} has this change, and nothing is left to apply"
    elif "applies" in change.fits:
        said.append(f"applies to {on}")
    return Finding(
        rule=row.rule or _RULE if row else _RULE,
        path=path,
        line=first.line,
        column=1,
        end_line=first.line,
        target=target,
        shape="patch-file",
        seam=row.seam if row else "none",
        message="; ".join([*said, *breaks]),
        related=tuple(Related(hunk.line, "touches") for hunk in others),
        in_test=is_test(path),
        answer=row.name if row else "",
        breaks=tuple(breaks),
        done=done,
        source=lines[first.line - 1].decode(errors="replace").rstrip("\r"),
    )


def _answer(target: str, module: str) -> Answer | None:
    """What is known of a definition, whatever is done to it."""
    inside = target.removeprefix(module).lstrip(".")
    owner, _, leaf = inside.rpartition(".")
    is_class = inside[:1].isupper() and not owner
    holder = inside if is_class else owner or module
    names = [f"{one.rpartition('.')[2]}.{leaf or '*'}" for one in api.ancestry(f"{module}.{owner}")] if owner else []
    names.append(f"{holder.rpartition('.')[2]}.{'*' if is_class or not leaf else leaf}")
    return next((row for row in answers() if not row.traits and row.fits(names, "patch-file")), None)
