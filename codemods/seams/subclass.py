"""Methods that are added to an object right behind the call that makes it: a subclass of the same name has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.codemod import Fix, Left
from mcore_unpatch.codemods.emptied import references
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.syntax import identifiers, leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source


def made_before(source: Source, statement: ast.Assign) -> ast.Assign | None:
    """`x = Class(...)`, behind which nothing stands before a statement but others that add methods to `x`."""
    suite, holder = source.home[id(statement)], _holder(statement)
    before = suite[: suite.index(statement)]
    while before and _holder(before[-1]) == holder:
        before = before[:-1]
    match before[-1:]:
        case [ast.Assign([target], ast.Call(ast.Name())) as made] if ast.unparse(target) == holder:
            return made
    return None


def to_subclass(files: Workbench, source: Source, made: ast.Assign, added: Mapping[ast.Assign, str]) -> Iterator[Fix]:
    """A class of the file, under the name that the object's was imported as, has the functions that are added."""
    call, top = made.value, source.tree.body
    assert isinstance(call, ast.Call)
    name, first = leaf(call.func), next((node for node in top if isinstance(node, Function | ast.ClassDef)), None)
    imports = [node for node in top if isinstance(node, ast.ImportFrom) and [one.name for one in node.names] == [name]]
    functions, theirs = {leaf(node.targets[0]): text for node, text in added.items()}, f"Megatron{name}"
    if len(imports) != 1 or imports[0].names[0].asname or first is None or imports[0].lineno > first.lineno:
        yield Left(f"`{name}` is not imported by a statement of its own before all functions")
        return
    if len(functions) != len(added) or not {*functions.values()} <= {getattr(node, "name", "") for node in top}:
        yield Left("not all of the methods are functions of this file")
    if theirs in identifiers(source.tree):
        yield Left(f"the name `{theirs}` is taken")
    for other, use in references(files, source, imports[0].names[0]):
        known = use in (imports[0], call.func) or _is_annotation(other, use)
        if (isinstance(use, ast.ImportFrom) or other is source) and not known:
            yield Left(f"{other.path}:{use.lineno} uses `{name}` too")
    said = f'class {name}({theirs}):\n    """Megatron\'s own, with methods of this file."""'
    for method, function in functions.items():
        said += f"\n\n    def {method}(self, *args, **kwargs):\n        return {function}(self, *args, **kwargs)"
    yield Rewrite(imports[0], f"from {imports[0].module} import {name} as {theirs}")
    yield above(source, first, f"{said}\n\n")
    yield from remove(source, added)


def _holder(node: ast.stmt) -> str:
    """`x` of `x.name = ...`."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    return ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""


def _is_annotation(source: Source, node: ast.AST) -> bool:
    """Whether a name stands in what says the type of something."""
    for above_it in source.above(node):
        said = getattr(above_it, "annotation", None) or getattr(above_it, "returns", None)
        if said is not None and any(one is node for one in ast.walk(said)):
            return True
    return False
