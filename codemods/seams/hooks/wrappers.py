"""What becomes of a wrapper around `forward` of one module, with the others that may be around the same module.

It begins or ends with the original, and hands on what it is given. Then the hook runs at the same moment with the same
values.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from mcore_unpatch.codemods.changes import Header, Replace, Rewrite
from mcore_unpatch.codemods.codemod import AddImport, Elsewhere, Fix, Note, Settles, Situation
from mcore_unpatch.codemods.layout import in_rows, line_limit
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.family import relatives
from mcore_unpatch.codemods.seams.hooks.classes import NOTES, REGISTER, REGISTERS, name_in_hook, why_no_hook
from mcore_unpatch.codemods.seams.hooks.form import BEHIND, WHOLE_MODEL, Form, Wrapper, bound
from mcore_unpatch.codemods.seams.hooks.found import Made, behind, calls_of_factory, used_by_others
from mcore_unpatch.codemods.seams.hooks.module import (
    FORWARD,
    MODEL,
    Reached,
    called_by_megatron,
    is_module,
    may_be_the_same,
    name_of,
    why_not,
)
from mcore_unpatch.codemods.seams.hooks.restored import Restored, is_global, put_back, scope_of
from mcore_unpatch.codemods.seams.patch import Patch, find_patch
from mcore_unpatch.codemods.syntax import imported, is_name, is_stored, is_value, names_in, parameters, walk_without
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, first_line, last_line
from mcore_unpatch.findings.finding import Finding

NOT_PLAIN, OTHER_CLASS = "it is not a plain assignment", "this changes the class of the module"
_CLASS = "class-attr"
_OF_ALL = {"class-attr", "class-of-instance", "string-target"}
_PRAGMAS = ("# type:", "# noqa", "# pylint", "# pragma", "# fmt", "# pyright", "# mypy")
_LOOPS = ast.For | ast.AsyncFor | ast.While
_LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break


@dataclass(frozen=True)
class _Wrapped:
    """A wrapper beside its assignment, how it calls the original, the statement that keeps that, and the hook it is."""

    patch: Patch
    made: Made
    original: str  # as the code beside the patch names it
    keeps: ast.Assign | None
    form: Form
    back: Restored

    @property
    def call(self) -> tuple[object, ...]:
        """How a factory is called: for modules or for classes, with the original or without."""
        return self.form.hooks, self.made.original, self.made.of_class, id(self.made.maker)

    @property
    def function(self) -> ast.FunctionDef:
        """The wrapper itself."""
        return self.made.function

    @property
    def own(self) -> list[ast.AST]:
        """The code that goes or is written anew."""
        return [self.function, *([self.keeps] if self.keeps else []), *self.back.own]

    def commutes_with(self, other: _Wrapped) -> bool:
        """Whether their order does not matter; `del` took everything away."""
        backs = (*self.back.statements, *other.back.statements)
        return self.form.commutes_with(other.form) and not any(isinstance(one, ast.Delete) for one in backs)


def to_hook(situation: Situation) -> list[Fix] | str:
    """The rewrite, or why it is not exactly a hook."""
    return situation.files.once(_Wrappers).to_hook(situation)


class _Wrappers:
    """The wrappers of a repository: two around one module can become hooks if their order does not matter."""

    def __init__(self, files: Workbench) -> None:
        self.files, self._name = files, cache(name_of)
        self._known: dict[tuple[str, int], tuple[Patch | None, _Wrapped | str]] = {}

    def to_hook(self, situation: Situation) -> list[Fix] | str:
        """The hook, for a wrapper and all others that may be around the same module."""
        _, mine = self._read(situation)
        if isinstance(mine, str):
            return mine
        because = self._of_class(situation) if situation.finding.shape == _CLASS else self._of_module(situation)
        return because or (self._installed if mine.made.maker is None else self._all_of)(situation, mine)

    def _of_module(self, situation: Situation) -> str:
        """Why others would come between: the wrappers that may be around the same module become hooks with this one."""
        of_class = f"{_module(situation.finding)}.{FORWARD}"
        for one in situation.staying.findings:  # the wrapper kept what the class had by then
            if one.target == of_class and one.shape in _OF_ALL and not one.in_test:
                return f"{one.path}:{one.line} replaces the method of the class, and the hook would wrap that"
        seen, waiting = {_key(situation.finding)}, [situation]
        while waiting:
            wrapper = waiting.pop()
            for other in self._around_the_same(wrapper):
                where = f"{other.finding.path}:{other.finding.line} wraps the same method"
                here, there = self._read(wrapper)[1], self._read(other)[1]
                if isinstance(here, str) or isinstance(there, str) or not here.commutes_with(there):
                    return f"{where}, and their order would change"
                if _key(other.finding) not in seen:
                    seen.add(_key(other.finding))
                    waiting.append(other)
                    if other.finding.path not in self.files.editable:
                        return f"{where} and is not part of this migration"
                    if because := _looked_at(there, self._branches(other, there)):
                        return f"{where} and stays: {because}"
        return ""

    def _of_class(self, situation: Situation) -> str:
        """Why others would: the hook for all modules runs inside of those of one, but not of their wrappers."""
        for one in situation.staying.findings:
            if not _is_forward(one) or _key(one) == _key(situation.finding):
                continue
            if one.target == situation.finding.target:
                return f"{one.path}:{one.line} replaces the same method, and their order would change"
            if one.confidence == "possible" and one.shape != _CLASS:
                stays = self.to_hook(replace(situation, finding=one))
                if isinstance(stays, str) or one.path not in self.files.editable:
                    return (
                        f"{one.path}:{one.line} may wrap the same method, and stays: the hook would run outside of it"
                    )
        return ""

    def _all_of(self, situation: Situation, mine: _Wrapped) -> list[Fix] | str:
        """The wrappers that one factory makes, all of them together."""
        assert mine.made.maker is not None
        home, maker = mine.made.source, mine.made.maker
        fixes: list[Fix] = [
            change if home is mine.patch.source else Elsewhere(home, change)
            for change in (*mine.made.changes, *mine.form.changes)
        ]
        settled, open_ones = list[Finding](), {_key(finding): finding for finding in situation.open}
        for source, statement in calls_of_factory(mine.made, self.files):
            where = f"{source.path}:{statement.lineno}"
            finding = open_ones.get((source.path, statement.lineno))
            if finding is None:
                return f"{where} uses `{maker.name}` for something else"
            if not {home.path, source.path} <= {*self.files.editable}:
                return f"{where} is not part of this migration"
            other = replace(situation, finding=finding)
            there = self._read(other)[1]
            if isinstance(there, str) or there.call != mine.call:
                return f"{where} uses `{maker.name}` too, and stays" + (f": {there}" if isinstance(there, str) else "")
            placed = self._installed(other, replace(there, form=replace(there.form, changes=[])))
            if isinstance(placed, str):
                return f"{where} uses `{maker.name}` too, and stays: {placed}"
            settled += [finding] if finding is not situation.finding else []
            same = source is mine.patch.source
            fixes += [one if same or isinstance(one, Note) else Elsewhere(source, one) for one in placed]  # type: ignore[arg-type]
        return [*dict.fromkeys(fixes), *([Settles(settled)] if settled else [])]

    def _installed(self, situation: Situation, mine: _Wrapped) -> list[Fix] | str:
        """The function as a hook, registered where it was assigned; what kept the original goes."""
        patch, form, statement = mine.patch, mine.form, mine.patch.statement
        branches = self._branches(situation, mine)
        if because := _looked_at(mine, branches):
            return because
        # The last of several branches takes what all have kept.
        kept_for_others = any(isinstance(branch, ast.stmt) and branch.lineno > statement.lineno for branch in branches)
        goes = [] if mine.keeps is None or kept_for_others or _still_kept(mine, branches) else [mine.keeps]
        said = _comments(patch.source, first_line(statement), last_line(statement))
        said.pop(last_line(statement), None)  # it stays where it is
        for assignment in goes:
            said |= _comments(patch.source, patch.source.first_with_comments(assignment), last_line(assignment))
        whole = patch.finding.shape == _CLASS
        module = "" if whole else patch.text(patch.target.value)
        width = line_limit(patch.source) - len(patch.source.indentation(statement))
        calls = [_laid_out(hook.registered(module, mine.made.hook), width, patch.source) for hook in form.hooks]
        text = "\n".join([*(said[line] for line in sorted(said)), mine.back.kept(calls)])
        changes = [*form.changes, Rewrite(statement, text, tell_checkers=False)]
        changes += mine.back.changes(patch.source, len(calls))
        of_model = name_of(patch.target.value, patch.around) == MODEL or _module(patch.finding).endswith("Model")
        notes = [*form.notes, *([WHOLE_MODEL] if of_model else [])]
        notes = [*NOTES, *(note for note in notes if note != BEHIND)] if whole else notes
        coming = [AddImport(REGISTERS, call.partition("(")[0]) for call in calls if whole]
        return [*changes, *coming, *remove(patch.source, goes, with_comments=True), *map(Note, notes)]

    def _branches(self, situation: Situation, mine: _Wrapped) -> list[ast.AST]:
        """The wrappers of other branches of the function, which may have kept the original too."""
        others = [other for other in _others(situation) if other.finding.path == situation.finding.path]
        read = [there for other in others if not isinstance(there := self._read(other)[1], str)]
        return [node for one in read if _excludes(mine, one) for node in (one.function, one.patch.statement)]

    def _read(self, situation: Situation) -> tuple[Patch | None, _Wrapped | str]:
        """A patch, and the hook that it is or why it is none."""
        key = _key(situation.finding)
        if key not in self._known:
            patch = find_patch(situation)
            why = OTHER_CLASS if situation.finding.target.endswith(".__class__") else NOT_PLAIN
            self._known[key] = patch, _wrapped(patch, self.files) if patch is not None else why
        return self._known[key]

    def _around_the_same(self, situation: Situation) -> Iterator[Situation]:
        """Patches that may be of the same module: inside out, one would see what the other has changed already."""
        mine, (patch, here) = situation.finding, self._read(situation)
        for finding in _others(situation):
            theirs = finding.finding
            alike, is_known = _module(theirs) == _module(mine), "possible" not in (mine.confidence, theirs.confidence)
            if is_known and not alike:
                continue
            other, there = self._read(finding)
            if not is_known:
                alike = may_be_the_same(patch, other, self._name) if patch and other else theirs.path == mine.path
            if alike and not (isinstance(here, _Wrapped) and isinstance(there, _Wrapped) and _excludes(here, there)):
                yield finding


def _key(finding: Finding) -> tuple[str, int]:
    return finding.path, finding.line


def _module(finding: Finding) -> str:
    return finding.target.rpartition(".")[0]


def _others(situation: Situation) -> Iterator[Situation]:
    """The other patches of a `forward` that may be wrappers, or of the class that has it."""
    for one in situation.staying.findings:
        wraps = one.shape in {"instance-attr", "setattr", _CLASS} and _is_forward(one)
        if wraps and _key(one) != _key(situation.finding):
            yield replace(situation, finding=one)


def _wrapped(patch: Patch, files: Workbench) -> _Wrapped | str:
    around, whole = patch.around, patch.finding.shape == _CLASS
    if patch.target.attr != FORWARD or patch.finding.shape not in {"instance-attr", _CLASS}:
        if patch.finding.target.endswith(".__class__"):
            return OTHER_CLASS
        if patch.finding.shape == "class-of-instance":
            return "it replaces `forward` of the class, reached through an object: name the class itself"
        changed = ".".join(patch.finding.target.split(".")[-2:])
        return f"only a patched `forward` of modules can become a forward hook, and this changes `{changed}`"
    if not whole and not is_module(patch.target.value, around, patch.finding):
        return f"`{patch.text(patch.target.value)}` is not known to be a module"
    if around is None and not whole:
        return "the patch is at the top level of the file"
    keeps = _keeps(patch, around or patch.source.tree) or (_keeps(patch, patch.source.tree) if whole else None)
    original = ast.unparse(keeps.targets[0]) if keeps is not None else ""
    made = behind(patch, original, files)
    if isinstance(made, str):
        return made
    function, source = made.function, patch.source
    lines = [] if made.expression else function.body
    if not all(map(made.source.owns_lines, lines)) or not source.owns_lines(patch.statement):
        return f"line {patch.statement.lineno} or `{function.name}` holds several statements on a line"
    if because := _not_around_calls(patch, files):
        return because
    findings = patch.situation.staying.findings
    back = put_back(patch, keeps, [one.line for one in findings if one.path == source.path and _is_forward(one)], files)
    if isinstance(back, str):
        return back
    known = imported(source)
    if whole and (taken := {one for one in bound(source.tree) & REGISTER if known.get(one) != f"{REGISTERS}.{one}"}):
        return f"the name `{min(taken)}` is taken"
    only = name_in_hook(patch, made) if whole else ""
    if whole and (not only or made.given or made.expression is not None):
        return f"`{function.name}` cannot ask for the class"
    named, target = made.original or original, ast.unparse(patch.target)
    wrapper = Wrapper(made.source, function, target, named, patch.bound, made.given, only)
    if not wrapper.original:
        return f"`{target}` is not saved under one name"
    if any(isinstance(node, _LOOPS) for node in _above(source, patch.statement, around)):
        suite = source.home[id(patch.statement)]  # each turn may put its original back
        if whole or not (wrapper.is_bound or made.original or any(one in suite for one in back.statements)):
            return f"`{function.name}` is defined in a loop, where the original is another each time"
    form = wrapper.read()
    if isinstance(form, str):
        return form
    if made.expression is not None:
        text = _as_lambda(made.source, made.expression, form)
        made, form = replace(made, hook=text), replace(form, changes=[])
        if not text:
            return "the lambda reads its arguments by name"
    if len(form.hooks) > 1 and made.hook != function.name:
        return f"`{function.name}` does something before and after the original, which takes two hooks"
    wrapped = _Wrapped(patch, made, original, keeps, form, back)
    return _kept_elsewhere(wrapped, original, files) or _kept_elsewhere(wrapped, back.box, files) or wrapped


def _not_around_calls(patch: Patch, files: Workbench) -> str:
    """Why a hook does not run where the wrapper did."""
    if patch.finding.shape == _CLASS:
        return why_no_hook(patch, files)
    if called_by_megatron(patch.target.value, patch.around, patch.finding):
        return "Megatron itself calls `forward` of such a module directly, where hooks do not run"
    return why_not(patch.target.value, patch.around, patch.source.path, files.once(Reached))


def _is_forward(finding: Finding) -> bool:
    return finding.target.endswith(f".{FORWARD}") and not finding.in_test


def _as_lambda(source: Source, node: ast.Lambda, form: Form) -> str:
    """A lambda as a hook; nothing where it would take a statement."""
    text, at = source.text(node.body), source.span(node.body).start
    parameters = ""
    for change in form.changes:
        match change:
            case Header():
                parameters = change.parameters
            case Replace():
                start, end = source.span(change.node)
                data = source.data[at : source.span(node.body).end]
                text = (data[: start - at] + source.encode(change.text) + data[end - at :]).decode(source.encoding)
            case Rewrite(text=str(returned)):
                text = f"({returned.removeprefix('return ')})"
            case _:
                return ""
    whole = f"lambda {parameters}: {text}"
    return ast.unparse(ast.parse(f"({whole})", mode="eval")) if "\n" in whole else whole


def _kept_elsewhere(wrapped: _Wrapped, kept: str, files: Workbench) -> str:
    """Where what keeps the original is read by others, which would miss it."""
    source = wrapped.patch.source
    if "." not in kept:
        at_top = wrapped.keeps is not None and source.function_of(wrapped.keeps) is None
        at_top = at_top or is_global(wrapped.patch, kept)
        rest = walk_without(source.tree, [*wrapped.own, wrapped.patch.statement]) if at_top else ()
        used = next((node.lineno for node in rest if isinstance(node, ast.Name) and node.id == kept), 0)
        return f"line {used} uses the original too" if used else used_by_others(kept, source, files) if at_top else ""
    owner, _, name = kept.partition(".")
    scope = scope_of(wrapped.patch, kept)
    kin = relatives(scope, files) if isinstance(scope, ast.ClassDef) else ()
    for inside, tree in [(source, scope), *kin]:
        for node in walk_without(tree, wrapped.own):
            in_class = is_stored(node, name) and inside.parents[inside.parents[node]] is tree
            if in_class or name in {getattr(node, "attr", ""), getattr(node, "value", "")}:
                line = getattr(node, "lineno", 0)
                where = f"line {line}" if inside is source else f"{inside.path}:{line}"
                return f"{where} uses `{kept}` too"
    for other in files.sources_saying(name):
        for node in walk_without(other.tree, [scope] if other is source else []):
            if isinstance(node, ast.Attribute) and node.attr == name and not is_name(node.value, owner):
                return f"{other.path}:{node.lineno} may use `{kept}` too"
    return ""


def _laid_out(call: str, width: int, source: Source) -> str:
    """A call that registers a hook, over three lines where one would be longer than those of the file."""
    opening, bracket, arguments = call.partition("_hook(")
    short = len(call) <= width or "\n" in call
    return call if short else f"{opening}{bracket}{in_rows(source, '', arguments.removesuffix(')'))})"


def _comments(source: Source, first: int, last: int) -> dict[int, str]:
    """The comments on some lines, those for tools left out."""
    text = textwrap.dedent(source.text_of(source.line_span(first, last)))
    tokens = tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    comments = {first + token.start[0] - 1: token.string for token in tokens if token.type == tokenize.COMMENT}
    return {line: comment for line, comment in comments.items() if not comment.startswith(_PRAGMAS)}


def _above(source: Source, node: ast.AST, around: Function | None) -> Iterator[ast.AST]:
    for outer in source.above(node):
        yield outer
        if outer is around:
            return


def _excludes(wrapped: _Wrapped, other: _Wrapped) -> bool:
    """Whether only one of two patches in a function can run: other branches of an `if`, or one that leaves."""
    source, around = wrapped.patch.source, wrapped.patch.around
    if around is None or around is not other.patch.around or wrapped.patch.statement is other.patch.statement:
        return False
    first, second = sorted((wrapped.patch.statement, other.patch.statement), key=lambda node: node.lineno)
    beyond = [second, *_above(source, second, around)]
    node: ast.AST = first
    while source.parents[node] not in beyond:
        suite = source.home.get(id(node), [])
        if suite and isinstance(suite[-1], _LEAVES):
            return True
        node = source.parents[node]
    branch = source.parents[node]
    if isinstance(branch, ast.If):
        return node in branch.body and any(node in branch.orelse for node in beyond)
    return False


def _looked_at(wrapped: _Wrapped, gone: Sequence[ast.AST]) -> str:
    """Where something else sees the module's `forward` or the original, and would see another now; `gone` goes too."""
    patch, target = wrapped.patch, ast.unparse(wrapped.patch.target)
    names = {FORWARD, wrapped.function.name}
    for node in walk_without(patch.source.tree, [*gone, *wrapped.own, patch.statement]):
        if isinstance(node, ast.Constant) and node.value in names:
            return f"line {node.lineno} asks for `{node.value}` by name"
        if isinstance(node, ast.Attribute) and node.attr == FORWARD and _is_asked_about(patch.source.parents[node]):
            return f"line {node.lineno} looks at `{ast.unparse(node)}`"
        if not isinstance(node, ast.Attribute | ast.Name) or patch.source.function_of(node) is not patch.around:
            continue
        if isinstance(node, ast.Attribute) and ast.unparse(node) == target:
            return f"line {node.lineno} looks at `{target}`"
        inner = isinstance(node, ast.Attribute) and node.attr == "__dict__" and not _is_of_another(patch, node)
        if inner or is_name(node, "vars"):
            return f"line {node.lineno} inspects the layer's attributes"
        if ast.unparse(node) == wrapped.original:
            used = patch.source.parents[node]
            if not (isinstance(used, ast.Call) and used.func is node):
                return f"line {node.lineno} passes the original on"
    return ""


def _is_asked_about(above: ast.AST) -> bool:
    """Whether what stands in it is compared, or asked what it is."""
    return isinstance(above, ast.Compare) or (isinstance(above, ast.Attribute) and above.attr.startswith("__"))


def _still_kept(wrapped: _Wrapped, gone: Sequence[ast.AST]) -> bool:
    """Whether other code of the function calls the original, which is kept for it then."""
    rest = walk_without(
        wrapped.patch.around or wrapped.patch.source.tree, [*gone, *wrapped.own, wrapped.patch.statement]
    )
    return any(is_name(node, wrapped.original) for node in rest)


def _is_of_another(patch: Patch, node: ast.Attribute) -> bool:
    """`x.__dict__["name"]` of something that is not the method."""
    match patch.source.parents[node]:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name != FORWARD
    return False


def _keeps(patch: Patch, around: Function | ast.Module) -> ast.Assign | None:
    """`original = module.forward`, the only one, of a local that never is anything else."""
    assigned = [node for node in ast.walk(around) if isinstance(node, ast.Assign)]
    if isinstance(around, ast.Module):
        assigned = [node for node in assigned if patch.source.function_of(node) is None]
    keeping = [node for node in assigned if ast.unparse(node.value) == ast.unparse(patch.target)]
    declared = {name for node in ast.walk(around) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    given, line = parameters(around) if isinstance(around, Function) else [], patch.statement.lineno
    loops = [node for node in ast.walk(around) if isinstance(node, ast.For) and node.lineno > line]
    later = [node.target for node in loops if isinstance(node.target, ast.Tuple)]  # those that put originals back
    if any(_times_stored(root, around, later) > (root not in given) for root in names_in(patch.target)):
        return None
    match keeping:
        case [ast.Assign(targets=[ast.Name() | ast.Attribute() as to]) as only] if patch.source.owns_lines(only):
            text = ast.unparse(to)
        case _:
            return None
    if isinstance(to, ast.Name) and not is_global(patch, text):
        return only if _times_stored(text, around, later) == 1 and text not in declared else None
    if isinstance(to, ast.Attribute) and not (given and is_name(to.value, given[0])):
        return None
    nodes = (node for node in ast.walk(scope_of(patch, text)) if isinstance(node, ast.Assign))
    stored = [node for node in nodes if text in map(ast.unparse, node.targets) and not is_value(node.value, None)]
    return only if stored == [only] else None


def _times_stored(name: str, scope: ast.AST, left_out: Sequence[ast.AST]) -> int:
    return sum(is_stored(node, name) for node in walk_without(scope, left_out))
