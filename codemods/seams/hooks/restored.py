"""Where a wrapper's original is put back: there the handle of the hook takes it away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Change, Replace, Rewrite
from mcore_unpatch.codemods.layout import step_of
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.family import relatives
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.syntax import identifiers, is_name, is_value, leaf, parameters
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Source

_HANDLE = "handle"
_EACH = re.compile(r"^(?:(?:list|tuple|reversed)\()+|(?:\.items\(\))?\)*$")  # around a name, what gives all of it
_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Restored:
    """The statements that put the original back, and what is written in their place; none for what stays for good."""

    step: str = "    "  # by how much the file indents
    handle: str = ""  # what keeps the hook's handle, or the handles of several
    box: str = ""  # what kept the originals of several modules
    statements: list[ast.stmt] = field(default_factory=list)
    mentions: list[ast.expr] = field(default_factory=list)  # of what kept the original, and keeps the handle then
    begins: list[ast.stmt] = field(default_factory=list)  # `originals = {}`
    keeps: list[ast.stmt] = field(default_factory=list)  # `originals[name] = module.forward`
    declared: list[tuple[ast.Global, str]] = field(default_factory=list)  # `global original`

    @property
    def own(self) -> list[ast.AST]:
        """The code that goes or is written anew."""
        return [*self.statements, *self.mentions, *self.begins, *self.keeps]

    def kept(self, calls: list[str]) -> str:
        """The statement that registers hooks, and keeps what takes them away."""
        if not self.handle:
            return "\n".join(calls)
        if self.begins:
            return "\n".join(f"{self.handle}.append({call})" for call in calls)
        if len(calls) == 1:
            return f"{self.handle} = {calls[0]}"
        return "\n".join([f"{self._handles} = [", *(f"{self.step}{call}," for call in calls), "]"])

    @property
    def _handles(self) -> str:
        return self.handle if self.begins else f"{self.handle}s"

    def changes(self, source: Source, hooks: int) -> Iterator[Change]:
        """What is done in place of putting the original back."""
        if self.begins or hooks > 1:
            text = f"for {_HANDLE} in {self._handles}:\n{self.step}{_HANDLE}.remove()"
        else:
            text = f"{self.handle}.remove()"
        yield from (Rewrite(one, text) for one in self.statements)
        yield from (Rewrite(one, f"{self.handle} = []") for one in self.begins)
        handle = self._handles if hooks > 1 else self.handle
        for one in self.mentions:  # an attribute, or what the body of its class has by that name
            yield Replace(one, handle.rpartition(".")[2] if isinstance(one, ast.Name) else handle)
        yield from remove(source, self.keeps)
        for node, kept in self.declared:
            names = [handle, *(name for name in node.names if name != kept)]
            yield Rewrite(node, f"global {', '.join(names)}")


def put_back(patch: Patch, keeps: ast.Assign | None, others: list[int], files: Workbench) -> Restored | str:
    """Where it is put back, or why the handle cannot be there; `others` are the lines of other patches of the file."""
    kept = ast.unparse(keeps.targets[0]) if keeps is not None else ""
    scope = scope_of(patch, kept)
    boxes = [box for one in ast.walk(scope) if (box := _box(one, patch, kept))]
    if len(boxes) == 1:
        scope = scope_of(patch, ast.unparse(boxes[0][0]))
        found = _in_a_box(patch, *boxes[0], scope)
    else:
        found = _one_by_one(patch, keeps, kept, scope)
    if isinstance(found, str):
        return found
    inside = range(scope.lineno, (scope.end_lineno or 0) + 1) if not isinstance(scope, ast.Module) else range(0)
    lines = {line for one in found.statements for line in range(one.lineno, (one.end_lineno or 0) + 1)}
    for line in (one.line for one in patch.finding.related if one.role == "restore" and one.line not in lines):
        if line in inside or not _is_of_another(patch.source, line, others):
            return f"line {line} puts the original back"
    if not found.statements:
        return Restored()
    shared = is_global(patch, kept)
    if shared and len(others) > 1:
        return f"line {next(line for line in others if line != patch.statement.lineno)} is a patch of the same kind"
    name = f"_{_HANDLE}" if shared else _HANDLE
    if any(line in inside for line in others if line != patch.statement.lineno):  # which may have one too
        name = f"{leaf(patch.target.value)}_{_HANDLE}"
        if not all(_is_told_apart(patch, node, others) for node in ast.walk(scope)):
            return f"line {patch.statement.lineno} and others would keep their handles under one name"
    name += "s" * bool(found.begins)
    kin = [one for _, one in relatives(scope, files)] if isinstance(scope, ast.ClassDef) else []
    nodes = [node for one in (scope, *kin) for node in ast.walk(one)]
    taken = set[str]().union(
        *map(identifiers, (scope, *kin)), (one.attr for one in nodes if isinstance(one, ast.Attribute))
    )
    if {_HANDLE, name, f"{name}s"} & taken:
        return f"the name `{name}` is taken"
    found.step = step_of(patch.source)
    owner = found.handle.rpartition(".")[0]
    found.handle = f"{owner}.{name}" if owner else name
    return found


def _is_told_apart(patch: Patch, node: ast.AST, others: list[int]) -> bool:
    """Whether a node is no other object whose `forward` is read or set, nor another patch, by the same last name."""
    if not isinstance(node, ast.Attribute) or node.attr != patch.target.attr:
        return True
    own, name = ast.unparse(patch.target.value), leaf(patch.target.value)
    is_own = ast.unparse(node.value) == own and node.lineno not in {*others} - {patch.statement.lineno}
    return bool(name) and (is_own or leaf(node.value) != name)


def scope_of(patch: Patch, kept: str) -> _Scope:
    """Where what keeps the original is known: the class whose object has it, or the function around the patch."""
    around = patch.around or patch.source.tree
    cls = patch.source.parents.get(around)
    if is_global(patch, kept):
        return patch.source.tree
    of_object = "." in kept or ast.unparse(patch.target).partition(".")[0] == _object_of(patch)
    return cls if isinstance(cls, ast.ClassDef) and of_object else around


def is_global(patch: Patch, kept: str) -> bool:
    """Whether the function around the patch keeps the original for the whole file."""
    nodes = ast.walk(patch.around) if patch.around is not None else ()
    return any(isinstance(node, ast.Global) and kept in node.names for node in nodes)


def _object_of(patch: Patch) -> str:
    """`self` in a method."""
    around = patch.around
    is_method = around is not None and isinstance(patch.source.parents.get(around), ast.ClassDef)
    return parameters(around)[0] if around is not None and is_method and parameters(around) else ""


def _is_of_another(source: Source, line: int, others: list[int]) -> bool:
    """Whether a line that puts something back stands in a function, or a class, with a patch of its own."""
    for scope in source.every(ast.FunctionDef, ast.ClassDef):
        inside = range(scope.lineno, (scope.end_lineno or 0) + 1)
        if line in inside and any(other in inside for other in others):
            return True
    return False


def _one_by_one(patch: Patch, keeps: ast.Assign | None, kept: str, scope: _Scope) -> Restored | str:
    """`module.forward = original`, or `del module.forward`."""
    target, source, found = ast.unparse(patch.target), patch.source, Restored(handle=kept)
    around, shared = patch.around or source.tree, is_global(patch, kept)
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Attribute() as to]) if ast.unparse(to) == target and kept:
                known = "." in kept or shared or around in source.above(node)
                is_back = known and ast.unparse(node.value) == kept
            case ast.Delete(targets=[ast.Attribute() as to]):
                is_back = ast.unparse(to) == target and patch.finding.shape != "class-attr"
            case _:
                continue
        if is_back:
            outside = around not in source.above(node)
            found.statements.append(node)
            found.handle = f"{_object_of(patch)}.{kept}" if outside and not shared and "." not in kept else found.handle
            if not source.owns_lines(node):
                return f"line {node.lineno} holds several statements"
            if not _runs_after(patch, keeps, node, outside):
                return f"line {node.lineno} puts the original back, and may run where no hook was registered"
    kinds = (ast.Attribute, ast.Name) if shared else ast.Attribute
    said: list[ast.expr] = [one for one in ast.walk(scope) if isinstance(one, kinds) and ast.unparse(one) == kept]
    if isinstance(scope, ast.ClassDef):
        bodies = (one.targets for one in scope.body if isinstance(one, ast.Assign))
        said += [one for targets in bodies for one in targets if is_name(one, kept.partition(".")[2])]
    if found.statements and shared:
        found.declared += [(node, kept) for node in source.every(ast.Global) if kept in node.names]
    for node in said if found.statements else ():
        above = source.parents[node]
        asked = isinstance(above, ast.Compare) and any(is_value(one, None) for one in above.comparators)
        cleared = isinstance(above, ast.Assign) and is_value(above.value, None) and above.targets == [node]
        if asked or cleared or isinstance(above, ast.If | ast.UnaryOp):
            found.mentions.append(node)
    return found


def _runs_after(patch: Patch, keeps: ast.Assign | None, restore: ast.stmt, outside: bool) -> bool:
    """Whether the hook is there wherever the original is put back."""
    source, statement = patch.source, patch.statement
    suite = source.home[id(statement)]
    with_keeps = keeps is None or source.home[id(keeps)] is suite
    if outside:
        return with_keeps  # another method: there the original was missing too
    above = [restore, *source.above(restore)]
    if any(one in above for one in suite[suite.index(statement) + 1 :]):
        return True
    whole = source.parents[statement]
    quiet = all(isinstance(one, ast.FunctionDef) or one is keeps for one in suite[: suite.index(statement)])
    if not isinstance(whole, ast.Try) or suite is not whole.body or not quiet:
        return False
    beyond = source.home[id(whole)]
    later = [*whole.finalbody, *whole.handlers, *whole.orelse, *beyond[beyond.index(whole) + 1 :]]
    return any(one in above for one in later)


def _box(node: ast.AST, patch: Patch, kept: str) -> tuple[ast.expr, ast.stmt] | None:
    """`originals[name] = module.forward` and `originals.append((module, module.forward))`."""
    texts = {ast.unparse(patch.target), kept} - {""}
    match node:
        case ast.Assign(targets=[ast.Subscript(value=box)], value=value) if ast.unparse(value) in texts:
            return box, node
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=box, attr="append"), args=[ast.Tuple(elts=[_, value])])):
            return (box, node) if ast.unparse(value) in texts else None
    return None


def _in_a_box(patch: Patch, box: ast.expr, keeps: ast.stmt, scope: _Scope) -> Restored | str:
    """Originals of several modules in a list or a dictionary, and the loop that puts them back."""
    name, source = ast.unparse(box), patch.source
    found = Restored(handle=name, box=name, keeps=[keeps])
    if source.home[id(keeps)] is not source.home[id(patch.statement)]:
        return f"line {keeps.lineno} keeps the original elsewhere"
    for node in (one for one in ast.walk(scope) if isinstance(one, ast.Name | ast.Attribute)):
        if ast.unparse(node) != name or node in ast.walk(keeps):
            continue
        statement = next(one for one in source.above(node) if isinstance(one, ast.stmt))
        empty = getattr(statement, "value", None)
        match statement:
            case ast.Assign(targets=[only]) | ast.AnnAssign(target=only) if only is node and _is_empty(empty):
                found.begins.append(statement)
            case ast.For(target=ast.Tuple(elts=[module, value]), body=[ast.Assign(targets=[to]) as back], orelse=[]):
                if _EACH.sub("", ast.unparse(statement.iter)) != name:
                    return f"line {statement.lineno} may put back only some of `{name}`"
                if ast.unparse(to) != f"{ast.unparse(module)}.forward" or ast.unparse(back.value) != ast.unparse(value):
                    return f"line {statement.lineno} does more with `{name}` than to put originals back"
                found.statements.append(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear"))):
                found.mentions.append(node)
            case _:
                return f"line {node.lineno} does more with `{name}` than to put originals back"
    lines = [*found.begins, *found.statements, keeps]
    plain = all(map(source.owns_lines, lines)) and not any("#" in source.text(one) for one in lines)
    if len(found.begins) != 1 or not found.statements or not plain:
        return f"`{name}` is not filled and emptied in a plain way"
    return found


def _is_empty(node: object) -> bool:
    return isinstance(node, ast.AST) and ast.unparse(node) in {"{}", "[]", "dict()", "list()"}
