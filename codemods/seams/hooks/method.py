"""A method of a class as a function of a hook beside the class."""

from __future__ import annotations

import ast
import re
import textwrap

from mcore_unpatch.codemods.changes import Asked, Reason
from mcore_unpatch.codemods.seams.hooks.form import Form
from mcore_unpatch.codemods.seams.undo import FORWARD
from mcore_unpatch.codemods.source import Source, last_line
from mcore_unpatch.codemods.syntax import identifiers, leaf

_MODULE = "module"


def as_function(source: Source, method: ast.FunctionDef, name: str) -> str | None:
    """A method by itself, with another name, and `module` for `self`; None where it says what only methods can."""
    own = method.args.args[0]
    inner = [node for node in ast.walk(method) if isinstance(node, ast.arg) and node.arg == own.arg]
    private = [one for one in identifiers(method) | {leaf(node) for node in ast.walk(method)} if _is_mangled(one)]
    texts = [one for one in ast.walk(method) if isinstance(one, ast.Constant | ast.JoinedStr)]
    doc = method.body[0].value if isinstance(method.body[0], ast.Expr) else None
    long = [one for one in texts if one is not doc and one.lineno != one.end_lineno]
    if len(inner) != 1 or private or long or method.decorator_list or not source.owns_lines(method):
        return None
    new = own.arg if _MODULE in identifiers(method) else _MODULE
    start = source.line_span(method.lineno, method.lineno).start
    spans = [source.span(node) for node in ast.walk(method) if isinstance(node, ast.Name) and node.id == own.arg]
    spans.append(source.span(own)._replace(end=source.span(own).start + len(own.arg.encode())))
    title = source.data.index(FORWARD.encode(), source.span(method).start)
    places = [(span.start, span.end, new) for span in spans] + [(title, title + len(FORWARD), name)]
    pieces, position = [], start
    for first, last, text in sorted(places):
        pieces += [source.data[position:first].decode(source.encoding), text]
        position = last
    pieces.append(
        source.data[position : source.line_span(last_line(method), last_line(method)).end].decode(source.encoding)
    )
    return textwrap.dedent("".join(pieces).replace(source.newline, "\n")).rstrip("\n") + "\n"


def with_docstring(text: str, source: Source, node: ast.ClassDef) -> str:
    """A function with the docstring of a class, whose body stands as deep as its own."""
    if not ast.get_docstring(node):
        return text
    lines, body = text.splitlines(), ast.parse(text).body[0].body  # type: ignore[attr-defined]
    doc = [source.line(line) for line in range(node.body[0].lineno, last_line(node.body[0]) + 1)]
    at = body[0].lineno - 1
    while lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return "\n".join([*lines[:at], *doc, *lines[at:]]) + "\n"


def _is_mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def is_supers(node: ast.expr) -> bool:
    """`super().forward`."""
    call = node.value if isinstance(node, ast.Attribute) and node.attr == FORWARD else None
    return isinstance(call, ast.Call) and leaf(call.func) == "super"


def made(snippet: Source, form: Form) -> str:
    """The function as a hook."""
    from mcore_unpatch.codemods.cst_tree import Tree

    reason = Reason("", "unsafe", "")
    return Tree(snippet).made([Asked(snippet, one, reason) for one in form.changes]).decode().rstrip("\n")


def has_a_footer(source: Source, node: ast.ClassDef) -> bool:
    """Whether comments of the class stand below its last statement."""
    line = last_line(node) + 1
    while line <= len(source.lines) and (source.is_blank(line) or source.is_comment(line)):
        if source.is_comment(line) and source.line(line)[0].isspace():
            return True
        line += 1
    return False


def snake(name: str) -> str:
    """`embedding_scaling` of `EmbeddingScalingMixin`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Mixin") or name).lower()
