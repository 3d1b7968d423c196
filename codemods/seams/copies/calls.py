"""Calls of a patched class's models: known by a keyword that only the patch takes, they are given the processor."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.codemods.changes import Change, Make
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.syntax import leaf

CALLER = "call_with_processor"
_CONTEXT = "context"
_TOKENS = "input_ids"


def calling(patch: Patch, travelling: Mapping[str, str]) -> list[Change] | str:
    """The calls of models that pass what only the patch takes, or why not all of them are known."""
    if not travelling:
        return "it patches the class and takes no parameter of its own by which calls of its models could be told"
    assert patch.function is not None
    found: list[Change] = []
    for source in patch.situation.files.sources_saying(next(iter(travelling))):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Dict | ast.Subscript) and _names(node) & travelling.keys():
                if isinstance(node, ast.Dict) or isinstance(node.ctx, ast.Store):
                    where = f"{source.path}, line {node.lineno}"
                    return f"{where} may pass `{next(iter(travelling))}` to a model in a mapping"
            if not isinstance(node, ast.Call) or not {one.arg for one in node.keywords} & travelling.keys():
                continue
            where = f"{source.path}, line {node.lineno}"
            if leaf(node.args[0] if node.args else None) != _TOKENS and _TOKENS not in {
                one.arg for one in node.keywords
            }:
                continue
            if _defines(source, node.func):
                continue
            if _CONTEXT in {one.arg for one in node.keywords}:
                return f"{where} passes a `{_CONTEXT}` of its own"
            if source is not patch.source:
                return f"{where} calls such a model in another file: pass the processor there"
            found.append(Make(node, _Caller(patch.function.name, travelling)))
    return found or f"it patches the class, and no call passes `{next(iter(travelling))}` to one of its models"


def _names(node: ast.Dict | ast.Subscript) -> set[object]:
    keys = node.keys if isinstance(node, ast.Dict) else [node.slice]
    return {key.value for key in keys if isinstance(key, ast.Constant)}


def _defines(source: Source, func: ast.expr) -> bool:
    """Whether what is called is a function or class that the file defines or imports: no model."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.alias
    names = {
        (getattr(node, "asname", None) or node.name) for node in ast.walk(source.tree) if isinstance(node, definitions)
    }
    return not leaf(func) or leaf(func) in names


@dataclass(frozen=True)
class _Caller:
    """`model(..., temperature=t)` as `call_with_processor(model, processor, ..., context={"temperature": t})`."""

    processor: str
    travelling: Mapping[str, str]

    def __call__(self, node: Any) -> Any:
        import libcst as cst

        from mcore_unpatch.codemods.cst_nodes import without

        args = list(node.args)
        own = [one for one in args if one.keyword is not None and one.keyword.value in self.travelling]
        code = cst.Module([]).code_for_node
        pairs = ", ".join(f'"{self.travelling[one.keyword.value]}": {code(one.value)}' for one in own)
        for one in own[1:]:
            args = without(args, args.index(one))
        at = next(
            at for at, one in enumerate(args) if one.keyword is not None and one.keyword.value == own[0].keyword.value
        )
        new: Any = cst.parse_expression(f"f({_CONTEXT}={{{pairs}}})")
        args[at] = new.args[0].with_changes(comma=args[at].comma, whitespace_after_arg=args[at].whitespace_after_arg)
        comma = args[0].comma if len(args) > 1 else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        before = [cst.Arg(node.func, comma=comma), cst.Arg(cst.Name(self.processor), comma=comma)]
        return node.with_changes(func=cst.Name(CALLER), args=[*before, *args])
