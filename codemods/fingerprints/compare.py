"""Whether a function is an upstream one, and if not, how it differs from the nearest release.

Functions and imports are compared as hashes, which leave out what a reader may change freely: comments, formatting,
docstrings and annotations do not count, nor what a fork calls its package; every other name, every constant and default
does.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.source import Source, first_line
from mcore_unpatch.library.digests import dump, is_text, without_package
from mcore_unpatch.records import record

# Of a function that no release has, the first lines are enough to recognise it.
_SHOWN_OF_NEW = 12
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


class StatementHash(NamedTuple):
    """A simple statement, or the head of a compound one: its hash and its lines in the file."""

    hash: str
    first: int
    last: int


@record
class UpstreamVersion:
    """One upstream version of a function: the releases that have it, its hash and its statements."""

    releases: Sequence[str]
    hash: str
    parts: Sequence[StatementHash]


@record
class Difference:
    """How a function differs from the nearest upstream version."""

    path: str
    name: str
    line: int
    release: str
    lines: int
    diff: str
    own: bool = True  # whether it has statements of its own; else it is upstream's with parts left out


class Fingerprints:
    """The upstream functions of one downstream project, by file and name."""

    def __init__(self, project: str) -> None:
        data = json.loads(files(__package__).joinpath(f"{project}.json").read_text(encoding="utf-8"))
        self.project: str = data["project"]
        self.releases: tuple[str, ...] = tuple(data["releases"])
        self._known = {
            (file, name): [
                UpstreamVersion(one["releases"], one["hash"], [StatementHash(*part) for part in one["parts"]])
                for one in versions
            ]
            for file, names in data["files"].items()
            for name, versions in names.items()
        }

    def knows(self, file: str, name: str) -> bool:
        """Whether any release has such a name in that file."""
        return (file, name) in self._known

    def has(self, file: str, name: str, digest: str) -> bool:
        """Whether a release has the function, or the import, of this hash; not if somebody changed it."""
        return any(known.hash == digest for known in self._known.get((file, name), ()))

    def imports(self, file: str, node: ast.AST, package: str) -> bool:
        """Whether a statement imports what upstream does, if from a file that moved into another folder."""
        if not isinstance(node, ast.ImportFrom):
            return False
        *folders, last = home_of(node, package, file).split(".")
        homes = [".".join([*folders[:number], *folders[number + 1 :], last]) for number in range(1, len(folders))]
        homes.append(".".join([*folders, last]))
        return all(
            any(self.has(file, f"import {alias.name}", _hash(f"{home}:{alias.name}", 6)) for home in homes)
            for alias in node.names
        )

    def difference(self, file: str, name: str, node: ast.stmt, package: str, source: Source) -> Difference:
        """How a changed function of a source differs from that of an upstream file."""
        found, path = list(parts(node, package)), source.path
        versions = self._known.get((file, name))
        if not versions:
            text = f"--- {self.project}: no release has `{name}` in {file}\n+++ {path}\n"
            own = [source.line(number) for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]
            shown = [f"+{line}\n" for line in own[:_SHOWN_OF_NEW]]
            rest = f"+... and {len(own) - _SHOWN_OF_NEW} more lines\n" if len(own) > _SHOWN_OF_NEW else ""
            return Difference(path, name, node.lineno, "", len(own), f"{text}@@ {name} @@\n{''.join(shown)}{rest}")
        nearest = max(versions, key=lambda known: _matcher(known.parts, found).ratio())
        release = nearest.releases[-1]
        head = f"--- {self.project} {release} {file}\n+++ {path}\n@@ {name} @@\n"
        body, count, new = _hunks(nearest.parts, found, source)
        # What an error says, and where a function imports upstream's names, is a fork's to choose.
        inside = (part for part in ast.walk(node) if isinstance(part, ast.Raise | ast.ImportFrom))
        free = {part.lineno for part in inside if isinstance(part, ast.Raise) or self.imports(file, part, package)}
        return Difference(path, name, node.lineno, release, count, head + body, own=not new <= free)


@cache
def load(project: str) -> Fingerprints:
    """The fingerprints of a project, read once."""
    return Fingerprints(project)


def _matcher(old: Sequence[StatementHash], new: Sequence[StatementHash]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, [part.hash for part in old], [part.hash for part in new], autojunk=False)


def _hunks(old: Sequence[StatementHash], new: Sequence[StatementHash], source: Source) -> tuple[str, int, set[int]]:
    """The differing statements, their number, and the first lines of the new ones.

    Of upstream only hashes are kept, so its side is told by line numbers.
    """
    shown: list[str] = []
    count, own = 0, set[int]()
    for tag, old_start, old_end, new_start, new_end in _matcher(old, new).get_opcodes():
        if tag == "equal":
            continue
        if gone := old[old_start:old_end]:
            first, last = gone[0].first, max(part.last for part in gone)
            count += last - first + 1
            shown.append(f"-(upstream lines {first}-{last})")
        numbers = sorted({line for part in new[new_start:new_end] for line in range(part.first, part.last + 1)})
        count += len(numbers)
        own |= {part.first for part in new[new_start:new_end]}
        shown += (f"+{source.line(number)}" for number in numbers)
    return "".join(f"{line}\n" for line in shown), count, own


def fingerprint(node: ast.stmt, package: str) -> str:
    """The hash of a whole statement; for a definition, its decorators included."""
    return _hash(dump(node, package), 12)


def origins(tree: ast.Module, package: str, file: str) -> dict[str, str]:
    """Imported name -> hash of its origin, for the imports at the top of a module.

    `package` is the name of the top package, `file` the module's path below it. `package.a.b` and its relative form
    are the same origin, whatever the package is called.
    """
    by_name: dict[str, str] = {}
    waiting: list[ast.AST] = [*tree.body]
    for node in waiting:
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = without_package(alias.name, package)
                if isinstance(node, ast.ImportFrom):
                    origin = f"{home_of(node, package, file)}:{alias.name}"
                by_name[bound_by_import(alias, node)] = _hash(origin, 6)
    return by_name


def home_of(node: ast.ImportFrom, package: str, file: str) -> str:
    """The module that an import is from; one of the package itself begins with a dot."""
    module = node.module or ""
    folders = file.split("/")
    if not node.level or node.level > len(folders):  # a package inside another may name itself from above
        return without_package(module, package)
    folders = folders[: -node.level]
    return "." + ".".join([*folders, module] if module else folders)


def parts(node: ast.AST, package: str) -> Iterator[StatementHash]:
    """The statements of a definition in order, the definition's own head first."""
    if isinstance(node, ast.stmt):
        if is_text(node):
            return
        blocks = [name for name in _BLOCKS if getattr(node, name, None)]
        first = node.lineno
        inner = getattr(node, blocks[0])[0] if blocks else None
        last = first_line(inner) - 1 if isinstance(inner, ast.stmt) else first if blocks else node.end_lineno or first
        yield StatementHash(_hash(dump(node, package, without=_BLOCKS), 6), first, max(first, last))
    for name in _BLOCKS:
        for child in getattr(node, name, None) or ():
            yield from parts(child, package)


def _hash(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
