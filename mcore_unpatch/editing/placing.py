"""From a plan to new contents: which edits apply, what each file becomes, where every edit ends up, and the diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter

from mcore_unpatch.editing.edits import Edit, NewContent, Plan, Repository, Unsound, in_order, splice
from mcore_unpatch.errors import UsageError
from mcore_unpatch.records import record
from mcore_unpatch.repository.paths import shown

_LONG = 8_000  # lines of a file whose diff need not be minimal
_STYLES = {b"@": b"36", b"-": b"31", b"+": b"32"}


@record
class SourceRange:
    """A range of bytes of a file; lines and columns count from 1, columns in bytes."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


@record
class PlacedEdit:
    """An edit with its place in the old and in the new file."""

    edit: Edit
    before: SourceRange
    after: SourceRange


def rewrites_of(plan: Plan, project: Repository) -> list[NewContent]:
    """The files that change; raises `Unsound` for edits that cannot be made."""
    rewrites = []
    for path, edits in _by_path(plan):
        if path not in project.editable:
            raise UsageError(
                f"a rewrite reaches into {shown(path)}, which is not among the files to migrate; nothing was written. "
                "Name the whole repository, or leave the rule out with --ignore"
            )
        before = project.data(path)
        try:
            after = splice(before, edits)
        except ValueError as error:
            raise Unsound({path: f"its edits do not fit together ({error})"}) from None
        if after != before:
            rewrites.append(NewContent(path, before, after, any(edit.deletes for edit in edits)))
    return rewrites


def changes_of(plan: Plan, data: Callable[[str], bytes]) -> list[PlacedEdit]:
    """Every edit of a plan, placed in the `data` of its file; in order of files and positions."""
    return [change for path, edits in _by_path(plan) for change in _placed(data(path), edits)]


def _by_path(plan: Plan) -> Iterator[tuple[str, list[Edit]]]:
    by_path = attrgetter("path")
    return ((path, list(edits)) for path, edits in groupby(sorted(plan.edits, key=by_path), by_path))


def _placed(data: bytes, edits: list[Edit]) -> Iterator[PlacedEdit]:
    after = splice(data, edits)
    shift = 0
    for edit in in_order(edits):
        start = edit.start + shift
        yield PlacedEdit(edit, span(data, edit.start, edit.end), span(after, start, start + len(edit.replacement)))
        shift += len(edit.replacement) - (edit.end - edit.start)


def moved_line(data: bytes, edits: list[Edit], line: int) -> int:
    """The line of the new file on which a line of the old one stands; one that is gone, where its edit begins."""
    start, added = sum(len(text) + 1 for text in data.split(b"\n")[: line - 1]), 0
    for edit in in_order(edits):
        if edit.start > start or (edit.start == start and edit.end > start):
            break
        if edit.end > start:
            return data.count(b"\n", 0, edit.start) + added + 1
        added += edit.replacement.count(b"\n") - data.count(b"\n", edit.start, edit.end)
    return line + added


def span(data: bytes, start: int, end: int) -> SourceRange:
    """A range of bytes with its lines and columns."""
    return SourceRange(start, end, *_position(data, start), *_position(data, end))


def _position(data: bytes, offset: int) -> tuple[int, int]:
    return data.count(b"\n", 0, offset) + 1, offset - data.rfind(b"\n", 0, offset)


def unified(path: str, before: bytes, after: bytes, gone: bool = False) -> bytes:
    """The difference between two contents of a file; empty if there is none."""
    # One character per byte; only \n ends a line, while str.splitlines would also break at a form feed.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1")) for data in (before, after))
    name = path.encode(errors="surrogateescape").decode("latin-1")
    end = "\t" if " " in name else ""
    lines = [f"--- a/{name}{end}\n", f"+++ {'/dev/null' if gone else f'b/{name}{end}'}\n"]
    # By default lines that are frequent are taken for noise, and some of them shown as changed: fast, and not minimal.
    for group in difflib.SequenceMatcher(None, old, new, len(new) > _LONG).get_grouped_opcodes():
        first, last = group[0], group[-1]
        lines.append(f"@@ -{_rows(first[1], last[2])} +{_rows(first[3], last[4])} @@\n")
        for tag, start, stop, new_start, new_stop in group:
            lines += [f"{' ' if tag == 'equal' else '-'}{line}" for line in old[start:stop]]
            lines += [f"+{line}" for line in new[new_start:new_stop] if tag != "equal"]
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return b"".join(line.encode("latin-1") for line in ended) if before != after else b""


def _rows(start: int, stop: int) -> str:
    """Lines as the head of a hunk counts them."""
    number = stop - start
    return f"{start + bool(number)}" if number == 1 else f"{start + bool(number)},{number}"


def coloured(diff: bytes) -> bytes:
    """A diff for a terminal."""
    return b"\n".join(map(_coloured, diff.split(b"\n")))


def _coloured(line: bytes) -> bytes:
    """The line as text that does nothing; the end of a CRLF line is not shown."""
    harmless = shown(line.removesuffix(b"\r").decode(errors="backslashreplace")).encode()
    style = b"1" if harmless.startswith((b"--- ", b"+++ ")) else _STYLES.get(harmless[:1])
    return harmless if style is None else b"\x1b[%sm%s\x1b[0m" % (style, harmless)
