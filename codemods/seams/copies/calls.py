"""Calls of a patched class's models: known by a keyword that only the patch takes, they are given the processor."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.codemods.changes import Change, Make
from mcore_unpatch.codemods.seams.copies.callers import model_calls
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.syntax import is_name

CALLER = "call_with_processor"
_CONTEXT = "context"


def calling(patch: Patch, travelling: Mapping[str, str]) -> list[Change] | str:
    """The calls of models that pass what only the patch takes, or why not all of them are known."""
    if not travelling:
        return "it patches the class and takes no parameter of its own by which calls of its models could be told"
    assert patch.function is not None
    one_of_them = next(iter(travelling))
    for source in patch.situation.files.sources_saying(one_of_them):
        if line := _in_a_mapping(source, travelling):
            return f"{source.path}, line {line} may pass `{one_of_them}` to a model in a mapping"
    found: list[Change] = []
    for call in patch.situation.once(model_calls):
        if not call.keywords & travelling.keys():
            if call.may_be_patched(()):
                return f"{call.where} may call such a model without `{one_of_them}`: it would get Megatron's own output"
            continue
        if _CONTEXT in call.keywords:
            return f"{call.where} passes a `{_CONTEXT}` of its own"
        if call.source is not patch.source:
            return f"{call.where} calls such a model in another file: pass the processor there"
        found.append(Make(call.node, _Caller(patch.function.name, travelling)))
    return found or f"it patches the class, and no call passes `{one_of_them}` to one of its models"


def _in_a_mapping(source: Source, travelling: Mapping[str, str]) -> int:
    """The line where a mapping gets one of the parameters as a key; 0 if there is none."""
    for node in source.every(ast.Dict, ast.Subscript, ast.Call):
        keys: Sequence[object] = ()
        if isinstance(node, ast.Call):
            keys = [one.arg for one in node.keywords] if is_name(node.func, "dict") else ()
        elif isinstance(node, ast.Dict):
            keys = [getattr(key, "value", None) for key in node.keys]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = [getattr(node.slice, "value", None)]
        if travelling.keys() & {key for key in keys if isinstance(key, str)}:
            return node.lineno
    return 0


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
