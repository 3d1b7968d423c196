"""A wrapper around `forward` of one module that calls the original once: PyTorch's forward hook or pre-hook.

Exactly that: `original = module.forward`, a function that begins or ends with `original(*args, **kwargs)`, and the
assignment. Then the hook runs at the same moment with the same values; what puts the original back removes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mcore_unpatch.codemods.changes import Change, Header, Make, Replace, Rewrite, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
from mcore_unpatch.codemods.seams.said import Said
from mcore_unpatch.codemods.seams.undo import FORWARD, Undoing, plan_undoing
from mcore_unpatch.codemods.source import Function, first_line, last_line
from mcore_unpatch.codemods.syntax import identifiers, is_one_of, names_outside
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding
from mcore_unpatch.paths import is_test

NOTES = (
    "a hook runs when the module is called, and not when something calls its `.forward(...)` directly",
    "it runs behind the hooks that the module has by then; the wrapper ran inside all of them",
    "register it before the model is compiled or captured in a CUDA graph; hooks that come later are not part of it",
)
KEEPS = "a forward hook that returns None leaves the output as it is; the wrapper's None was the output"
_MODULE, _OUTPUT = "_module", "output"
_LOOPS = ast.For | ast.AsyncFor | ast.While
_INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class DirectCall(NamedTuple):
    """`x.name.forward(...)`, where no hook runs."""

    path: str
    line: int
    name: str


@dataclass(frozen=True)
class Made:
    """A wrapper as a hook: the call that registers it, and what becomes of the function."""

    how: str
    changes: list[Change]
    notes: tuple[str, ...]


def to_hook(patch: Patch) -> Rewritten | str:
    """The rewrite, or why it is not exactly a hook."""
    function, around = patch.function, patch.around
    if patch.target.attr != FORWARD or patch.finding.shape != "instance-attr":
        return "a hook runs around `forward` of one module, and this patch is of another kind"
    if patch.finding.confidence == "possible":
        return f"`{patch.text(patch.target.value)}` cannot be shown to be a module"
    if not isinstance(function, ast.FunctionDef) or around is None or not is_one_of(function, ast.walk(around)):
        return "the wrapper is not a function beside the assignment"
    if not all(map(patch.source.owns_lines, (patch.statement, *function.body))):
        return f"line {patch.statement.lineno} or `{function.name}` holds several statements on a line"
    if sum(isinstance(node, ast.Name) and node.id == function.name for node in ast.walk(around)) != 1:
        return f"`{function.name}` is also used elsewhere"
    if other := next(_around_the_same(patch.finding, patch.situation.staying.findings), None):
        return f"{other.path}:{other.line} wraps the same method, and which of them runs first would change"
    if direct := next(_directly(patch, patch.situation.once(find_direct_calls)), None):
        return f"{direct.path}:{direct.line} calls `forward` directly, where hooks do not run"
    wrapper = _Wrapper(patch, function, _original(patch, around))
    if not wrapper.original:
        return "the original is not kept in one name"
    if any(isinstance(one, _LOOPS) for one in _above(function, patch)):
        if not wrapper.is_bound or any(one.role == "restore" for one in patch.finding.related):
            return f"`{function.name}` is made in a loop, and calls the original of the last turn or is undone later"
    made = wrapper.read()
    if isinstance(made, str):
        return made
    undoing = plan_undoing(patch, [function], [])
    if isinstance(undoing, str):
        return undoing
    return _installed(patch, made, undoing)


def _above(node: ast.AST, patch: Patch) -> Iterator[ast.AST]:
    while node is not patch.around:
        node = patch.source.parents[node]
        yield node


def _around_the_same(finding: Finding, others: Iterable[Finding]) -> Iterator[Finding]:
    """Patches that may be of the same module: inside out, one would see what the other has changed already."""
    for one in others:
        alike = one.target == finding.target and one.shape in {"instance-attr", "setattr"} and not one.in_test
        if alike and (one.path, one.line) != (finding.path, finding.line):
            yield one


def find_direct_calls(files: Workbench) -> list[DirectCall]:
    """Where the repository calls `forward` without the module."""
    return [
        DirectCall(source.path, node.lineno, _leaf(node.func.value))
        for source in files.sources_saying(".forward(")
        for node in source.every(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == FORWARD
        if not isinstance(node.func.value, ast.Call)
    ]


def _directly(patch: Patch, calls: Iterable[DirectCall]) -> Iterator[DirectCall]:
    """Any in this file; elsewhere, tests left out, those of what has the same name."""
    leaf = _leaf(patch.target.value)
    for one in calls:
        if one.path == patch.source.path or (one.name == leaf and not is_test(one.path)):
            yield one


def _leaf(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _original(patch: Patch, around: Function) -> str:
    """The local name that was read from the module's forward, and never is anything else."""
    kept = [
        node.targets[0].id
        for node in ast.walk(around)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value) == ast.unparse(patch.target)
    ]
    stored = [node for node in ast.walk(around) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    roots = {node.id for node in ast.walk(patch.target) if isinstance(node, ast.Name)}
    given = {one.arg for one in (*around.args.posonlyargs, *around.args.args, *around.args.kwonlyargs)}
    for root in roots:
        if sum(node.id == root for node in stored) > (root not in given):
            return ""
    return kept[0] if len(kept) == 1 and sum(node.id == kept[0] for node in stored) == 1 else ""


class _Wrapper:
    """The function: its parameters, its call of the original, and what comes before or after."""

    def __init__(self, patch: Patch, function: ast.FunctionDef, kept: str) -> None:
        self.patch, self.function = patch, function
        spec = function.args
        self.named = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        self.module = self.named.pop(0) if patch.bound and self.named else _MODULE
        self.args = spec.vararg.arg if spec.vararg else ""
        self.kwargs = spec.kwarg.arg if spec.kwarg else ""
        self.original, self.mentions = kept, {kept}
        self.own: list[str] = []  # parameters that only hold a value
        for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if value is not None and ast.unparse(value) in {kept, ast.unparse(patch.target)}:
                self.original = one.arg
                self.mentions.add(one.arg)
            else:
                self.own.append(f"{one.arg}={patch.text(value)}" if value is not None else "")
        self.is_bound = self.original != kept
        self.changes: list[Change] = []

    def read(self) -> Made | str:
        """How it is registered, with the changes of the function; or why it is no hook."""
        function, spec = self.function, self.function.args
        if self._has_comments_in_header():
            return f"comments stand among the parameters of `{function.name}`"
        if len(self.named) > 1 or spec.defaults or not all(self.own) or (self.named and not self.args):
            return f"`{function.name}` has parameters of its own, which a caller may pass by name or leave out"
        if len(self.named) == 1 and not self.kwargs:
            return f"`{function.name}` takes no `**kwargs`"
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and self._is_original(node.func)]
        wraps = [one for one in function.decorator_list if isinstance(one, ast.Call) and self._is_wraps(one)]
        inside = [node for one in function.body for node in ast.walk(one) if isinstance(node, ast.Name)]
        if len(calls) != 1 or sum(one.id in self.mentions for one in inside) != 1:
            return f"`{function.name}` does more with the original than to call it once"
        if len(wraps) != len(function.decorator_list):
            return f"`{function.name}` is decorated"
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _walk_own(function)):
            return f"`{function.name}` is a generator"
        if taken := {_MODULE, f"_{self.args or 'args'}"} & identifiers(function):
            return f"the name `{min(taken)}` is taken"
        if wraps:
            self.changes.append(Make(function, _undecorated))
        body = function.body[bool(ast.get_docstring(function, clean=False)) :]
        returns = [node for node in _walk_own(function) if isinstance(node, ast.Return)]
        last = body[-1]
        if isinstance(last, ast.Return) and last.value is calls[0] and len(returns) == 1:
            return self._before(body[:-1], last, calls[0])
        if is_one_of(calls[0], ast.walk(body[0])):
            return self._after(body, calls[0], returns)
        return f"`{function.name}` does something before and after the original, or calls it on a condition"

    def _has_comments_in_header(self) -> bool:
        """Among decorators and parameters, which are written anew."""
        spec, source = self.function.args, self.patch.source
        parts: list[ast.arg | ast.expr | None] = [
            *spec.args,
            *spec.kwonlyargs,
            *spec.kw_defaults,
            spec.vararg,
            spec.kwarg,
        ]
        last = max((one.end_lineno or 0 for one in parts if one is not None), default=self.function.lineno)
        last += source.line(last + 1).lstrip().startswith(")")
        return any("#" in source.line(line) for line in range(first_line(self.function), last + 1))

    def _has_comment(self, statement: ast.stmt) -> bool:
        source, last = self.patch.source, last_line(statement)
        return b"#" in source.data[source.span(statement).start : source.line_span(last, last).end]

    def _is_original(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self.original

    def _is_wraps(self, node: ast.Call) -> bool:
        named = [ast.unparse(one) in {*self.mentions, ast.unparse(self.patch.target)} for one in node.args]
        return _leaf(node.func) == "wraps" and named == [True]

    def _passes_everything(self, call: ast.Call) -> bool:
        given = [*self.named, *([f"*{self.args}"] if self.args else []), *([f"**{self.kwargs}"] if self.kwargs else [])]
        return ast.unparse(call) == f"{self.original}({', '.join(given)})"

    def _with_own(self, *parameters: str) -> Header:
        return Header(self.function, ", ".join([self.module, *parameters, *(["*", *self.own] if self.own else [])]))

    def _read_named(self, first: ast.stmt, *, take: bool) -> None:
        """The parameter that the wrapper had a name for, by position or by that name, as Python binds it."""
        name = self.named[0]
        by_name = f'{self.kwargs}.pop("{name}")' if take else f'{self.kwargs}["{name}"]'
        text = f"{name} = {self.args}[0] if {self.args} else {by_name}"
        self.changes.append(above(self.patch.source, first, text))

    def _after(self, body: list[ast.stmt], call: ast.Call, returns: list[ast.Return]) -> Made | str:
        """The original first: a forward hook, which is given the output."""
        name, first = self.function.name, body[0]
        if not self._passes_everything(call):
            return f"`{name}` does not pass all its arguments on"
        used = names_outside(self.function, [call, *self.function.decorator_list])
        reads = bool(self.named) and self.named[0] in used
        if reads and {self.args, self.kwargs} & used:
            return f"`{name}` uses its arguments both by name and together"
        output = _OUTPUT
        plain = isinstance(first, ast.Assign) and first.value is call and len(first.targets) == 1
        target = first.targets[0] if isinstance(first, ast.Assign) else None
        if plain and isinstance(target, ast.Name) and len(body) > 1 and not self._has_comment(first):
            output = target.id
            self.changes += remove(self.patch.source, [first])
        elif plain or (isinstance(first, ast.Return) and _comes_first(call, first)):
            if output in identifiers(self.function):
                output = f"{output}s"
            if output in identifiers(self.function):
                return f"the name `{output}` is taken"
            self.changes.append(Replace(call, output))
        else:
            return f"`{name}` calls the original on a condition, within a block, or after something else"
        if not isinstance(body[-1], ast.Return) or any(_is_none(one.value) for one in returns):
            return f"`{name}` may return None, which a hook does not take for an output"
        if reads:
            self._read_named(body[1] if output == getattr(target, "id", "") and len(body) > 1 else first, take=False)
        given = [self.args if reads or self.args in used else f"_{self.args or 'args'}"]
        keywords = reads or (bool(self.kwargs) and self.kwargs in used)
        given += [self.kwargs] if keywords else []
        self.changes.append(self._with_own(*given, output))
        how = f"register_forward_hook({name}{', with_kwargs=True' if keywords else ''})"
        return Made(how, self.changes, (*NOTES, KEEPS))

    def _before(self, body: list[ast.stmt], last: ast.Return, call: ast.Call) -> Made | str:
        """The original last: a pre-hook, which may give other arguments."""
        name, everything = self.function.name, self._passes_everything(call)
        if not (self.args and self.kwargs):
            return f"`{name}` does not take its arguments as `*args, **kwargs`"
        if [ast.unparse(one) for one in call.keywords] != [f"**{self.kwargs}"]:
            return f"`{name}` passes other arguments by name; put them into `{self.kwargs}`"
        used = {node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name)}
        if everything and not {self.args, self.kwargs, *self.named} & used:
            if not body or self._has_comment(last):
                return f"`{name}` changes nothing"
            self.changes += remove(self.patch.source, [last])
            self.changes.append(self._with_own(f"_{self.args}"))
            return Made(f"register_forward_pre_hook({name})", self.changes, NOTES)
        parts = [self.patch.text(one) for one in call.args]
        if self.named:
            if parts[-1:] != [f"*{self.args}"] or self.args in used | set().union(*map(_names, call.args[:-1])):
                return f"`{name}` uses its arguments both by name and together"
            parts[-1] = f"*{self.args}[1:]"
            self._read_named(body[0] if body else last, take=True)
        args = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})" if parts != [f"*{self.args}"] else self.args
        self.changes.append(Rewrite(last, f"return {args}, {self.kwargs}"))
        self.changes.append(self._with_own(self.args, self.kwargs))
        return Made(f"register_forward_pre_hook({name}, with_kwargs=True)", self.changes, NOTES)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _walk_own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, _INNER):
            waiting += ast.iter_child_nodes(node)


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _comes_first(call: ast.Call, statement: ast.Return) -> bool:
    """Whether every other call of a `return` is made on the result of this one."""
    whole = list(ast.walk(statement))
    others = [node for node in whole if isinstance(node, ast.Call) and node is not call]
    special = any(isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr | ast.Await | _INNER) for node in whole)
    return not special and all(is_one_of(call, ast.walk(other)) for other in others)


def _undecorated(node: Any) -> Any:
    return node.with_changes(decorators=[])


def _installed(patch: Patch, made: Made, undoing: Undoing) -> Rewritten:
    call = f"{patch.text(patch.target.value)}.{made.how}"
    said = Said(patch.source)
    said.inside(patch.statement)
    for one in undoing.removed:
        said.between(patch.source.first_with_comments(one), last_line(one))
    text = "\n".join([*said.lines(), f"{undoing.handle} = {call}" if undoing.handle else call])
    removed: list[ast.stmt] = list(undoing.removed)
    changes = [*made.changes, *undoing.changes]
    if undoing.lift is None:
        changes.append(Rewrite(patch.statement, text, tell_checkers=False))
    else:
        changes.append(above(patch.source, undoing.lift, text))
        removed.append(patch.statement)
    return Rewritten([*changes, *remove(patch.source, removed, with_comments=True)], notes=made.notes)
