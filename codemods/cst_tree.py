"""One file as libcst has it: the twin of a node of `ast`, changes made on nodes, and what they come to in bytes."""

from __future__ import annotations

import ast
import codecs
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from mcore_unpatch.codemods.changes import Asked, Change, Insert, Remove, Rewrite, Unwrap, least_safe
from mcore_unpatch.codemods.cst_nodes import changed
from mcore_unpatch.codemods.excerpt import Excerpt
from mcore_unpatch.editing.edits import Edit, Repository, Unsound, splice
from mcore_unpatch.editing.source import Source

_Body = cst.Module | cst.IndentedBlock
_Line = cst.SimpleStatementLine | cst.SimpleStatementSuite
_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_KINDS: tuple[tuple[type[ast.AST], tuple[type[cst.CSTNode], ...]], ...] = (
    (ast.stmt, (cst.BaseSmallStatement, cst.BaseCompoundStatement)),
    (ast.expr, (cst.BaseExpression,)),
)
_PASS = cst.SimpleStatementLine([cst.Pass()])
_PRAGMAS = ("# type:", "# noqa", "# pyright:")


class Unfaithful(Unsound):
    """A file that libcst does not give back byte for byte, or changes of it that do not fit together."""

    def __init__(self, source: Source, why: str) -> None:
        super().__init__({source.path: why})


class Tree:
    """A file; `module` is the tree of libcst."""

    def __init__(self, source: Source, asked: Iterable[Asked] | None = None) -> None:
        """Of some changes only their statements are parsed, else all."""
        self.source = source
        try:
            for some in (asked, None):  # indented comments that end a file are lost without the statement before them
                self.excerpt = Excerpt(source, some)
                self.module = cst.parse_module(self.excerpt.data)
                if self.module.bytes == self.excerpt.data:
                    break
            else:
                why = "libcst does not give its bytes back: mostly line endings of `\\r` alone, or form feeds"
                raise Unfaithful(source, why)
        except (cst.ParserSyntaxError, UnicodeError, RecursionError) as error:
            raise Unfaithful(source, f"libcst cannot parse it ({type(error).__name__})") from None
        ranges = MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(PositionProvider)
        self._at: defaultdict[tuple[int, int], list[tuple[tuple[int, int], cst.CSTNode]]] = defaultdict(list)
        self._first: dict[cst.CSTNode, int] = {}  # the line of a statement's first decorator, or its own
        self._home: dict[cst.CSTNode, tuple[_Body, int]] = {}
        self._line: dict[cst.CSTNode, _Line] = {}
        for node, where in ranges.items():
            self._at[where.start.line, where.start.column].append(((where.end.line, where.end.column), node))
            if isinstance(node, cst.Module | cst.IndentedBlock):
                for index, statement in enumerate(node.body):
                    self._home[statement] = node, index
                    above = next(iter(getattr(statement, "decorators", ())), statement)
                    self._first[statement] = ranges[above].start.line
            elif isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
                self._line |= dict.fromkeys(node.body, node)

        first = [self._first[statement] - len(statement.leading_lines) for statement in self.module.body]
        self._starts = [1, *first[1:]] if first else []  # the lines of the statements, with what stands above each

    def twin(self, node: Any) -> cst.CSTNode:
        """The node of libcst that stands for the same text as one of `ast`."""
        kinds = next(kinds for one, kinds in _KINDS if isinstance(node, one))
        start, end = self._column(node.lineno, node.col_offset), self._column(node.end_lineno, node.end_col_offset)
        if isinstance(node, ast.Tuple | ast.GeneratorExp) and self.source.text(node).startswith("("):
            start, end = (start[0], start[1] + 1), (end[0], end[1] - 1)  # libcst does not count the brackets
        exact = isinstance(node, ast.expr)
        nodes = [node for stop, node in self._at[start] if isinstance(node, kinds) and (not exact or stop == end)]
        if not nodes:
            raise Unfaithful(self.source, f"libcst reads line {start[0]} in another way")
        return nodes[-1]

    @cached_property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """What each node stands in; libcst's own provider visits the tree, which takes five times as long."""
        found, waiting = dict[cst.CSTNode, cst.CSTNode](), list[cst.CSTNode]([self.module])
        for node in waiting:
            for name in node.__dataclass_fields__:
                value = getattr(node, name)
                inside = (
                    [one for one in value if isinstance(one, cst.CSTNode)] if isinstance(value, list | tuple) else []
                )
                inside += [value] if isinstance(value, cst.CSTNode) else []
                found.update(dict.fromkeys(inside, node))
                waiting += inside
        return found

    def _column(self, line: int, column: int) -> tuple[int, int]:
        """A position in characters, as libcst counts."""
        ascii_ = self.source.lines[line - 1].isascii()
        return line, column if ascii_ else len(self.source.line(line).encode()[:column].decode())

    def edits(self, asked: Sequence[Asked]) -> list[Edit]:
        """The changes in bytes: each by itself, those of one statement together, or all, whichever they come to."""
        if (apart := self._apart(asked)) is not None:
            return apart
        groups: defaultdict[int, list[Asked]] = defaultdict(list)
        for one in asked:
            groups[self._index(one)].append(one)
        # Two that leave a body empty bring `pass`, which neither does.
        found = [edit for group in groups.values() for edit in self._apart(group) or [self._edit(group)]]
        # At the end of a file without a newline, lines that go are not apart.
        return found if self._fits(found, asked) else [self._edit(asked)]

    def _apart(self, asked: Sequence[Asked]) -> list[Edit] | None:
        """Each change by itself, if that is what all of them do."""
        edits = [edit for one in asked if (edit := self._edit([one])).replacement or edit.start < edit.end]
        return edits if self._fits(edits, asked) else None

    def _fits(self, found: Sequence[Edit], asked: Sequence[Asked]) -> bool:
        try:
            return splice(self.source.data, found) == self.made(asked)
        except ValueError:
            return False

    def _index(self, asked: Asked) -> int:
        """The statement of the module that a change is in."""
        return max(0, bisect_right(self._starts, asked.change.node.lineno) - 1)

    def _edit(self, asked: Sequence[Asked]) -> Edit:
        """The lines that changes make different, or the part of a line."""
        made, old = self.made(asked), self.source.lines
        new = made.splitlines(keepends=True)
        head, tail = (len(asked) == 1 and self._known_lines(asked[0].change, old, new)) or _equal_ends(old, new)
        start, before = sum(map(len, old[:head])), b"".join(old[head : len(old) - tail])
        after = b"".join(new[head : len(new) - tail])
        if self.source.data.startswith(made):  # the end of a file, and with it the newline before
            start, before, after = len(made), self.source.data[len(made) :], b""
        elif before.count(b"\n") <= 1 and after.count(b"\n") <= 1 and before and after:
            left, right = _equal_ends(before, after)
            start, before, after = start + left, before[left : len(before) - right], after[left : len(after) - right]
        why, path = least_safe(one.reason for one in asked), self.source.path
        notes = tuple(dict.fromkeys(note for one in asked for note in one.reason.notes))
        end = start + len(before)
        return Edit(path, why.rule, why.applicability, start, end, after, why.title, notes, why.finding_line)

    def _known_lines(self, change: Change, old: list[bytes], new: list[bytes]) -> tuple[int, int] | None:
        """How many lines stay before and behind lines that come or go: between equal ones that cannot be seen."""
        if isinstance(change, Insert):
            head, tail = change.before - 1, len(old) - change.before + 1
        elif isinstance(change, Remove):
            head, tail = change.first - 1, len(old) - change.last
        else:
            return None
        stays = head >= 0 and old[:head] == new[:head] and old[len(old) - tail :] == new[len(new) - tail :]
        return (head, tail) if stays and head + tail <= len(new) else None

    def made(self, asked: Iterable[Asked]) -> bytes:
        """The file with changes made, in one pass over its nodes."""
        maker = _Maker(self)
        indices: set[int] = set()
        for one in asked:
            maker.take(one)
            index = self._index(one)
            maker.touched.add(index)
            # What stands above one may go to the next; without the last one, the one before ends the file.
            indices |= set(range(max(0, index - 1), min(index + 2, len(self._starts))))
        pieces, line = [], 1
        for _, neighbours in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in neighbours]
            first, last = numbers[0], numbers[-1]
            made = self.excerpt.restored(maker.statements(first, last + 1))
            pieces += [*self.source.lines[line - 1 : self._starts[first] - 1], made]
            line = self._starts[last + 1] if last + 1 < len(self._starts) else len(self.source.lines) + 1
        return b"".join([*pieces, *self.source.lines[line - 1 :]])


def not_given_back(repository: Repository, paths: Iterable[str]) -> set[str]:
    """The files that libcst does not give back as they are, and that no migration may touch."""
    broken = set()
    for path in paths:
        try:
            Tree(repository.source(path))
        except Unfaithful:
            broken.add(path)
    return broken


def _equal_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """How many items are the same at the beginning and at the end."""
    same = min(len(old), len(new))
    head = next((index for index in range(same) if old[index] != new[index]), same)
    same -= head
    return head, next((index for index in range(same) if old[-1 - index] != new[-1 - index]), same)


class _Maker(cst.CSTTransformer):
    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.tree = tree
        self.above: set[cst.CSTNode] = set()  # the nodes with a change below them: libcst copies all that it visits
        self.touched: set[int] = set()  # the statements of the module with a change below them
        self.nodes: defaultdict[cst.CSTNode, list[Asked]] = defaultdict(list)
        self.bodies: defaultdict[cst.CSTNode, defaultdict[int, list[Asked]]] = defaultdict(lambda: defaultdict(list))

    def take(self, asked: Asked) -> None:
        """One change more."""
        change, twin = asked.change, self.tree.twin(asked.change.node)
        if not isinstance(change, Insert | Remove | Rewrite | Unwrap):
            self.nodes[twin].append(asked)
            self._lead_to(twin)
            return
        line = self.tree._line.get(twin)
        statement = line if line is not None else twin
        alone = line is None or len(line.body) == 1 or isinstance(change, Insert)
        if statement not in self.tree._home or not alone:
            raise Unfaithful(self.tree.source, f"line {change.node.lineno} holds more than one statement")
        body, index = self.tree._home[statement]
        self.bodies[body][index].append(asked)
        self._lead_to(body)

    def _lead_to(self, node: cst.CSTNode | None) -> None:
        while node is not None and node not in self.above:
            self.above.add(node)
            node = self.tree.parents.get(node)

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Whether a change stands below it."""
        return node in self.above

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        """A node with its changes, once those below it are made."""
        if original_node in self.nodes:
            for node in self.nodes[original_node]:
                updated_node = changed(node, updated_node)
        if original_node in self.bodies:
            body, footer = self._body(original_node, original_node.body, updated_node.body, updated_node.footer)
            updated_node = updated_node.with_changes(body=body or [_PASS], footer=footer)
        return updated_node

    def statements(self, first: int, last: int) -> bytes:
        """Some of the statements of the module, in bytes."""
        module = self.tree.module
        old, is_end = module.body[first:last], last == len(module.body)
        new: Sequence[Any] = [
            statement.visit(self) if index in self.touched else statement for index, statement in enumerate(old, first)
        ]
        if not first:
            new = [new[0].with_changes(leading_lines=(*module.header, *new[0].leading_lines)), *new[1:]]
        body, footer = self._body(module, old, new, module.footer if is_end else ())
        part = module.with_changes(header=(), body=body, footer=footer)
        if not is_end:
            part = part.with_changes(has_trailing_newline=True)
        data = (part.code if body or footer else "").encode(self.tree.source.encoding)
        return codecs.BOM_UTF8 + data if module.encoding == "utf-8-sig" and not first else data

    def _body(
        self, home: _Body, old: Sequence[Any], new: Sequence[Any], footer: Sequence[cst.EmptyLine]
    ) -> tuple[list[Any], Sequence[cst.EmptyLine]]:
        """Statements of a suite, some of which come, go, or become others; each line above one stays where it was."""
        asked = self.bodies[home]
        gone = {
            line
            for some in asked.values()
            for one in some
            if isinstance(one.change, Remove)
            for line in range(one.change.first, one.change.last + 1)
        }
        lines: list[cst.EmptyLine] = []  # above what comes next
        body: list[Any] = []

        def arrive(change: Insert) -> None:
            nonlocal lines
            parsed = cst.parse_module(_text(change) + "\n", self.tree.module.config_for_parsing)
            lines += map(_unindented, parsed.header)
            for statement in parsed.body:
                body.append(statement.with_changes(leading_lines=(*lines, *statement.leading_lines)))
                lines = []
            lines += map(_unindented, parsed.footer)

        for statement, updated in zip(old, new, strict=True):
            changes = [one.change for one in asked.get(self.tree._home[statement][1], ())]
            arriving = sorted((change for change in changes if isinstance(change, Insert)), key=lambda one: one.before)
            first, above = self.tree._first[statement], list(updated.leading_lines)
            for number, line in enumerate(above, first - len(above)):
                for one in [one for one in arriving if one.before <= number]:
                    arrive(one)
                    arriving.remove(one)
                lines += [] if number in gone else [line]
            for one in [one for one in arriving if one.before <= first]:
                arrive(one)
                arriving.remove(one)
            rewrite = next((change for change in changes if isinstance(change, Rewrite | Unwrap)), None)
            if rewrite is not None:
                statements, behind = _instead(rewrite, updated, self.tree.module)
                body += [statements[0].with_changes(leading_lines=(*lines, *statements[0].leading_lines))]
                body += statements[1:]
                lines = list(behind)
            elif not any(isinstance(change, Remove) for change in changes):
                body.append(updated.with_changes(leading_lines=lines))
                lines = []
            for one in arriving:
                arrive(one)
        return body, (*lines, *footer)


def _text(change: Insert | Rewrite) -> str:
    return change.text if isinstance(change.text, str) else change.text()


def _unindented(line: cst.EmptyLine) -> cst.EmptyLine:
    """A blank line holds nothing, wherever it comes to stand."""
    return line if line.comment else line.with_changes(indent=False)


def _instead(change: Rewrite | Unwrap, old: Any, module: cst.Module) -> tuple[Sequence[Any], Sequence[cst.EmptyLine]]:
    """The statements in the place of one, and the lines behind them."""
    if isinstance(change, Rewrite):
        return _rewritten(change, old, module), ()
    if change.keep == "orelse" and isinstance(old.orelse, cst.If):
        return [old.orelse], ()
    behind = [old.orelse.body] if old.orelse else []
    blocks = behind if change.keep == "orelse" else [old.handlers[0].body] if change.keep == "handler" else [old.body]
    if isinstance(old, cst.Try) and change.keep == "body":
        blocks = [old.body, *behind]
    statements: list[Any] = []
    lines: Sequence[cst.EmptyLine] = ()
    for block in blocks:
        if isinstance(block, cst.SimpleStatementSuite):
            inner: Sequence[Any] = [cst.SimpleStatementLine(block.body, trailing_whitespace=block.trailing_whitespace)]
        else:
            inner = block.body
        first = inner[0].with_changes(leading_lines=(*lines, *inner[0].leading_lines))
        statements += [first, *inner[1:]]
        lines = getattr(block, "footer", ())
    return statements, lines


def _rewritten(change: Rewrite, old: _Statement, module: cst.Module) -> list[Any]:
    """The new statements, the last with the comment that stood behind the old one."""
    parsed = cst.parse_module(_text(change) + "\n", module.config_for_parsing)
    new: list[Any] = list(parsed.body)
    new[0] = new[0].with_changes(leading_lines=(*parsed.header, *new[0].leading_lines))
    if isinstance(old, cst.SimpleStatementLine) and isinstance(new[-1], cst.SimpleStatementLine):
        behind = old.trailing_whitespace
        said = behind.comment.value if behind.comment else ""
        if not change.tell_checkers and said and all(f"#{part}".startswith(_PRAGMAS) for part in said.split("#")[1:]):
            behind = replace(behind, whitespace=cst.SimpleWhitespace(""), comment=None)
        new[-1] = new[-1].with_changes(trailing_whitespace=behind)
    return new
