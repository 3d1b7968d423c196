"""The edits that put subclasses in the place of patched classes: the classes, and the specs that name them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.changes import Make, Replace, Rewrite, above
from mcore_unpatch.codemods.codemod import (
    COMPAT,
    AddImport,
    DropImport,
    Fix,
)
from mcore_unpatch.codemods.layout import line_limit
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.specs.patch import WITH, ClassPatch, gone_with
from mcore_unpatch.codemods.seams.specs.reach import bound_to, module_for
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source

if TYPE_CHECKING:
    import libcst as cst


def writing(bench: Workbench, patches: Sequence[ClassPatch]) -> Iterator[tuple[Source, Fix]]:
    """The classes in the place of the patches, which go with all that only they asked for."""
    emptied = gone_with(bench, patches)
    gone = defaultdict(set, {at: set(emptied.outermost(at)) for at in emptied.statements})
    here: defaultdict[Function, list[ClassPatch]] = defaultdict(list)  # where a class stands at its installer
    for patch in patches:
        yield from patch.writing()
        if patch.installer is None:
            statements = [part.statement for part in patch.parts]
            gone[patch.source] |= {*(statements if patch.module else statements[:-1])}
        elif patch.installer not in gone[patch.source]:
            gone[patch.source] |= set(patch.going(whole=False))
        if patch.installer and not patch.module and patch.anchor is patch.installer:
            here[patch.installer].append(patch)
    for installer, some in here.items():
        text, source = "\n\n\n".join(patch.text for patch in some), some[0].source
        if installer in gone[source]:
            gone[source].remove(installer)
            yield source, Rewrite(installer, text)
        else:
            yield source, above(source, installer, f"{text}\n\n")
    for at, nodes in gone.items():
        yield from ((at, change) for change in remove(at, nodes, with_comments=True))
    yield from ((at, DropImport(at, node, name)) for at, node, name in emptied.imports)


def naming(bench: Workbench, swaps: Sequence[ClassPatch]) -> Iterator[tuple[Source, Fix]]:
    """The classes in the specs, with what these places import for them."""
    wrapped: dict[int, tuple[Source, ast.Call, list[ClassPatch]]] = {}
    for swap in swaps:
        for at, node in swap.places.named:
            yield at, Replace(node, swap.name)
            yield from _imports(bench, swap, at)
        for at, call in swap.places.made:
            wrapped.setdefault(id(call), (at, call, []))[2].append(swap)
    for at, call, some in wrapped.values():
        pairs: list[str] = []
        for swap in some:
            base = bound_to(at, swap.cls, call)
            if not base:
                base = swap.short
                yield at, AddImport(swap.cls.rpartition(".")[0], base)
            pairs.append(f"{base}: {swap.name}")
            yield from _imports(bench, swap, at)
        # A spec may name another class for some options: a patch of this one had no effect then either.
        yield at, Make(call, partial(_wrap, at, call, [f"{{{', '.join(pairs)}}}", "needed=False"]))
        yield at, AddImport(COMPAT, WITH)


def _imports(bench: Workbench, swap: ClassPatch, at: Source) -> Iterator[tuple[Source, Fix]]:
    if at is not swap.home and not swap.is_there(at):
        yield at, AddImport(module_for(bench, swap.home.path, at), swap.name)


def _wrap(source: Source, at: ast.Call, arguments: Sequence[str], call: cst.CSTNode) -> cst.CSTNode:
    """`with_classes(call, ...)`, in a row each where one line is not enough."""
    import libcst as cst

    code, line = cst.Module([]).code_for_node(call), source.line(at.lineno)
    whole = f"{WITH}({', '.join([code, *arguments])})"
    texts = (node for node in ast.walk(at) if isinstance(node, ast.Constant | ast.JoinedStr))
    in_rows = "\n" in code or len(line) + len(whole) - len(code) > line_limit(source)
    if in_rows and all(node.end_lineno == node.lineno for node in texts):
        indent = line[: len(line) - len(line.lstrip())]
        first, *others = code.split("\n")
        rows = ["\n".join([first, *(f"    {other}" if other.strip() else other for other in others)]), *arguments]
        whole = f"{WITH}(\n" + "".join(f"{indent}    {row},\n" for row in rows) + f"{indent})"
    return cst.parse_expression(whole)
