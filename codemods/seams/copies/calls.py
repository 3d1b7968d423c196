"""Calls of a patched class's models: known by a keyword that only the patch takes, they are given the processor."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.codemods.changes import Make
from mcore_unpatch.codemods.codemod import AddImport, Elsewhere
from mcore_unpatch.codemods.imported import imported
from mcore_unpatch.codemods.seams.copies.behind import InstalledCopy
from mcore_unpatch.codemods.seams.copies.callers import model_calls
from mcore_unpatch.codemods.seams.patch import COMPAT, is_taken
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.syntax import identifiers, leaf, parameters
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.megatron.known import called_with
from mcore_unpatch.megatron.layout import GPT_MODEL

CALLER = "call_with_processor"
_CONTEXT = "context"


def calling(one: InstalledCopy, travelling: Mapping[str, str]) -> list[Elsewhere] | str:
    """The calls of models that pass what only the patch takes, or why not all of them are known."""
    patch, name = one.patch, one.function.name
    if not travelling:
        return "it patches the class and takes no parameter of its own by which calls of its models could be told"
    one_of_them = next(iter(travelling))
    files = patch.situation.files
    expected = called_with(f"{GPT_MODEL}.forward", patch.situation.options.target)
    for source in files.sources_saying(one_of_them):
        if line := _in_a_mapping(source, travelling):
            return f"{source.path}, line {line} may pass `{one_of_them}` to a model in a mapping or a `partial`"
        for function in source.every(ast.FunctionDef):
            if function.name in {"forward", "__call__"} and travelling.keys() & {*parameters(function)}:
                return f"{source.path}, line {function.lineno} takes `{one_of_them}` too: calls may be of that"
    found: list[Elsewhere] = []
    for call in patch.situation.once(model_calls):
        if not call.keywords & travelling.keys():
            if expected is None or call.fits(expected):
                return f"{call.where} may call such a model without `{one_of_them}`: it would get Megatron's own output"
            continue
        if _CONTEXT in call.keywords:
            return f"{call.where} passes a `{_CONTEXT}` of its own"
        if is_taken(CALLER, call.source.tree):
            return f"the name `{CALLER}` is taken in {call.source.path}"
        limit = files.imports(call.source.path).limit
        change = Make(call.node, _Caller(name, travelling, call.node.col_offset, limit))
        found.append(Elsewhere(call.source, change, AddImport(COMPAT, CALLER)))
        if call.source.path != one.home.path:
            module = _importable(files, one, call.source)
            if not module:
                return f"{call.where} calls such a model in another file: import `{name}` and pass it there"
            found.append(Elsewhere(call.source, change, AddImport(module, name)))
    return found or f"it patches the class, and no call passes `{one_of_them}` to one of its models"


def _importable(files: Workbench, one: InstalledCopy, source: Source) -> str:
    """The module that another file can import the function from; empty where that is not clear."""
    path = one.home.path
    imports = ((node.module or "", node.level) for node in one.home.every(ast.ImportFrom))
    if any(files.locate(path, *module) == source.path for module in imports):  # one imports the other already
        return ""
    top = posixpath.dirname(path)
    while top and files.exists(f"{top}/__init__.py"):
        top = posixpath.dirname(top)
    module = path.removeprefix(f"{top}/" if top else "").removesuffix(".py").replace("/", ".")
    is_known = one.function.name in identifiers(source.tree) and one.function.name not in imported(source)
    return module if not is_known and files.locate(source.path, module, 0) == path else ""


def _in_a_mapping(source: Source, travelling: Mapping[str, str]) -> int:
    """The line where a mapping gets one of the parameters as a key; 0 if there is none."""
    for node in source.every(ast.Dict, ast.Subscript, ast.Call):
        keys: Sequence[object] = ()
        if isinstance(node, ast.Call):
            keys = [one.arg for one in node.keywords] if leaf(node.func) in {"dict", "partial"} else ()
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
    column: int
    limit: int

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
        made = node.with_changes(func=cst.Name(CALLER), args=[*before, *args])
        text = code(made)
        if "\n" in text or self.column + len(text) <= self.limit:
            return made
        lines = [f"    {code(one.with_changes(comma=cst.MaybeSentinel.DEFAULT))}," for one in made.args]
        return cst.parse_expression("\n".join([f"{CALLER}(", *lines, ")"]))
