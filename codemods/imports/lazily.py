"""Where a file imports Megatron: at the top, under a guard, or inside functions; what needs Megatron goes there too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mcore_unpatch.editing.source import Function, Source, Suite, first_line
from mcore_unpatch.library.syntax import dotted

_NEEDED = {"megatron", "mcore_unpatch"}
_IMPORTS = (ast.Import, ast.ImportFrom)


def suites_for(source: Source, nodes: Iterable[ast.AST]) -> list[Suite]:
    """The suites that an import of ours belongs to, so that each of these nodes sees its names: mostly one.

    Who has no Megatron can still import a file that asks for it in functions, or under a guard.
    """
    if shared := _of_the_file(source):
        return [shared]
    chosen = {id(suite): suite for suite in (_of_a_function(source, node) for node in nodes)}
    inside = {
        id(suite)
        for suite in chosen.values()
        for statements in _around(source, suite[0])
        if statements is not suite and id(statements) in chosen
    }
    return [suite for suite in chosen.values() if id(suite) not in inside] or [source.tree.body]


def _of_the_file(source: Source) -> Suite | None:
    """The suite of module level that imports Megatron; None where only functions do, or nobody."""
    guarded: Suite | None = None
    for node in source.tree.body:
        if _is_megatron(node):
            return source.tree.body
        if isinstance(node, ast.Try | ast.If) and any(map(_is_megatron, node.body)):
            others = [statement for part in [node.orelse, *_handlers(node)] for statement in part]
            if isinstance(node, ast.Try) and any(map(_is_megatron, others)):
                return source.tree.body  # the same name from another release
            if not (isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING")):
                guarded = guarded or node.body
    return guarded


def _of_a_function(source: Source, node: ast.AST) -> Suite:
    """The outermost suite around a node that imports Megatron before it; else one with imports.

    Else its function's, in a file that imports Megatron in functions alone. Where it does so nowhere, what needs it
    was imported at the top, by another name.
    """
    around = [suite for suite in _around(source, node) if suite is not source.tree.body]
    before = {id(suite): [one for one in suite if first_line(one) <= getattr(node, "lineno", 0)] for suite in around}
    megatron = [suite for suite in around if any(map(_is_megatron, before[id(suite)]))]
    if megatron:
        return megatron[-1]
    importing = [suite for suite in around if any(isinstance(statement, _IMPORTS) for statement in before[id(suite)])]
    function = source.function_of(node) if any(map(_is_megatron, source.every(*_IMPORTS))) else None
    return importing[0] if importing else function.body if function else source.tree.body


def _around(source: Source, node: ast.AST) -> Iterator[Suite]:
    """The suites inside functions and of the module that a node stands in, the innermost first."""
    statements = [one for one in source.above(node) if isinstance(one, ast.stmt)]
    if isinstance(node, ast.stmt) and not isinstance(node, Function):
        statements.insert(0, node)
    for statement in statements:
        if not isinstance(source.parents[statement], ast.ClassDef):
            yield source.home[id(statement)]


def _handlers(node: ast.Try | ast.If) -> list[Suite]:
    return [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []


def _is_megatron(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""] if not node.level else []
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(name.partition(".")[0] in _NEEDED for name in names)
