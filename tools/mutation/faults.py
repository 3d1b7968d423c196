"""Small faults in a Python file: what a slip of the hand would leave behind, one at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
# Without these nothing changes that a test could see: a line in a warning, what is the default anyway, a guard against
# our own mistakes, an encoding that this machine has without being asked, how long is waited and how much at a time.
# Where torch makes a tensor is seen on a GPU alone, as a kernel is.
_UNSEEN = {
    "stacklevel", "strict", "check", "encoding", "help", "show_default", "flush", "category", "repr", "maxsize",
    "indent", "clean", "timeout", "chunksize", "compresslevel", "buffering", "daemon", "max_workers", "digest_size",
    "memory_format", "non_blocking",
}  # fmt: skip
# What only costs time or memory: what is counted towards a bound on effort, which of the values that are kept is let go
# first, and when garbage is looked for.
_EFFORT = {"spend", "move_to_end", "demote", "wanted", "set_num_threads"}
# Bounds on effort, with room: one more or one less is the same. How many of something are shown is not such a bound.
_ROOM = re.compile(
    r"_((LARGEST|LONGEST|DEEPEST|DEPTH|STEPS|LEVELS|NEAREST|PATIENCE|KEPT)(_[A-Z_]+)?"
    r"|MOST_(FILES|BYTES|READ|HOPS|HELPERS|BASES|STEPS|LINKS|COMMITS|ENTRIES|ROWS))"
)
_BOUND = 60  # a larger number is a bound with room, or a size that only costs speed


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the span of the file that it replaces, in bytes, and the text that stands there instead."""

    path: str
    line: int
    last_line: int
    start: int
    end: int
    before: str
    text: str
    kind: str
    shown: str  # the lines that the fault stands on, with it: what it is known by

    def applied_to(self, source: bytes) -> bytes:
        """The file with the fault in it; it must be the one that the fault was made for."""
        if source[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.path} changed during the run")
        return source[: self.start] + self.text.encode() + source[self.end :]

    def compiles(self, source: bytes) -> bool:
        """Whether the file is still Python with the fault in it."""
        try:
            compile(self.applied_to(source), self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True


def faults_in(path: str, source: bytes) -> list[Fault]:
    """Every fault that is known for a file, in the order of the file; a few may not compile."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, unread = [], _unread_defaults(tree)
    for node in _executed(tree):
        if id(node) in unread:
            continue
        for kind, text in _replacements(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            before, last = source[start:end].decode(), node.end_lineno or node.lineno
            shown = source[starts[node.lineno - 1] : start].decode() + text + source[end : starts[last]].decode()
            found.append(Fault(path, node.lineno, last, start, end, before, text, kind, " ".join(shown.split())))
    return sorted(found, key=lambda fault: (fault.start, fault.end, fault.text))


def _unread_defaults(tree: ast.AST) -> set[int]:
    """Defaults of parameters that their function never reads: it takes them because a downstream's did."""
    unread: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            spec = node.args
            read = {inner.id for one in node.body for inner in ast.walk(one) if isinstance(inner, ast.Name)}
            last = [*spec.posonlyargs, *spec.args][::-1]
            pairs = [
                *zip(last, spec.defaults[::-1], strict=False),
                *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
            ]
            unread |= {id(default) for argument, default in pairs if default and argument.arg not in read}
    return unread


def _executed(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What decides something when it runs: no annotation, docstring, message of an error, or kernel."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "keywords") and not isinstance(
            tree, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr) or not isinstance(child, ast.AST) or _is_silent(child):
                continue
            if isinstance(child, ast.expr | ast.stmt) and not (isinstance(tree, ast.Subscript) and name == "slice"):
                yield child
            if not isinstance(child, ast.Raise):
                yield from _executed(child)


def _is_silent(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.keyword(arg=name) if name in _UNSEEN:
            return True
        case ast.BoolOp(ast.Or(), [ast.Attribute(attr="end_lineno" | "end_col_offset"), _]):
            return True  # the parser sets both; the question is for the type checker
        case ast.If(ast.Name("TYPE_CHECKING")) | ast.Assign([ast.Name("__all__")]):
            return True
        case ast.Assign([ast.Name(name)], ast.Constant()) if _ROOM.fullmatch(name):
            return True
        case ast.Assign(_, ast.Subscript(ast.Name("Callable" | "Annotated" | "dict" | "list" | "set" | "tuple"))):
            return True  # the name of a type
        case ast.BoolOp() | ast.Compare() if "sys.version_info" in ast.unparse(node):
            return True  # of other Pythons than the one that the tests run on
        case ast.BoolOp() if "os.cpu_count()" in ast.unparse(node):
            return True  # how many processes
        case ast.BinOp(ast.Name("steps" | "depth"), ast.Add() | ast.Sub(), ast.Constant(1)):
            return True  # how deep is looked: a bound with room
        case ast.Assign([ast.Name("_NEWER")]):
            return True  # names that other Pythons have
        case ast.FunctionDef(name="__repr__"):
            return True
        case ast.Raise(ast.Call(ast.Name("AssertionError" | "NotImplementedError")) | ast.Name("NotImplementedError")):
            return True  # a guard against our own mistakes
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "debug" | "info"))) if "log" in name.lower():
            return True
        case ast.Expr(ast.Call(ast.Attribute(of, name))) if name in _EFFORT or ast.unparse(of) == "gc":
            return True
        case ast.FunctionDef(decorator_list=decorators):
            return any("triton" in ast.unparse(decorator) for decorator in decorators)
    return False


def _replacements(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """The faults of one node: what is done, and the text that takes its place."""
    match node:
        case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()], [right]) if _is_bound(left, right):
            pass  # one more or one less
        case ast.Compare(left, [operator], [right]):
            other = _COMPARISONS[type(operator)]()
            yield "comparison", _text(ast.Compare(left, [other], [right]))
        case ast.BoolOp(operator, values):
            swapped = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", _text(ast.BoolOp(swapped, values))
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield "condition dropped", _text(rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest))
        case ast.UnaryOp(ast.Not(), operand):
            yield "not dropped", _text(operand)
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", _text(ast.BinOp(left, _ARITHMETIC[type(operator)](), right))
        case ast.Constant(bool() as value):
            yield "constant", repr(not value)
        case ast.Constant(int() as value) if abs(value) < _BOUND:
            yield "constant", repr(value + 1)
        case ast.IfExp(_, body, orelse):
            yield "choice", _text(body)
            yield "choice", _text(orelse)
        case ast.Call(function, arguments, keywords) if keywords and not isinstance(function, ast.Name | ast.Constant):
            for keyword in keywords:
                if keyword.arg in _UNSEEN or (keyword.arg == "device" and ast.unparse(function).startswith("torch.")):
                    continue
                rest_of = [other for other in keywords if other is not keyword]
                yield "argument dropped", _text(ast.Call(function, arguments, rest_of))
        case ast.Set(elements) | ast.Tuple(elements, ast.Load()) | ast.List(elements, ast.Load()) if len(elements) > 1:
            if all(isinstance(element, ast.Constant | ast.Attribute | ast.Name) for element in elements):
                for element in elements:
                    rest = [other for other in elements if other is not element]
                    made = ast.Set(rest) if isinstance(node, ast.Set) else type(node)(rest, ast.Load())  # type: ignore[call-arg]
                    yield "member dropped", _text(made)
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield "nothing returned", "return None"
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
            yield "statement dropped", "pass"
        case ast.Continue():
            yield "continue/break", "break"
        case ast.Break():
            yield "continue/break", "continue"


def _is_bound(*sides: ast.expr) -> bool:
    """Whether one more or one less is the same: of a bound with room, or of time."""
    return any(
        (isinstance(side, ast.Name) and _ROOM.fullmatch(side.id)) or ast.unparse(side) == "time.monotonic()"
        for side in sides
    )


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
